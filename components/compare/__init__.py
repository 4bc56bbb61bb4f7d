"""Decides whether an evaluated model may be released."""
