"""Tells how a run ended: the pipeline's exit handler."""
