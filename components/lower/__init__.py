"""Writes the training step of a model as XLA's program, for the TPU's compiler."""
