"""What composes, checks, runs and submits the pipeline. Imports no TensorFlow, and kfp only where it is used."""
