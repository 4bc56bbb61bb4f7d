"""Compiles a run's training step by the TPU's own compiler, on this machine, before a TPU is paid for."""
