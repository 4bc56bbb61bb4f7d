"""Trains a model on the replicas of one machine, in Keras fit or a custom loop, and resumes where it was killed."""
