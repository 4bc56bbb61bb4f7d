"""Runs a pipeline on this machine, in processes or in containers."""
