"""Compiles the training step by the TPU's own compiler, and says whether it fits and what it costs."""
