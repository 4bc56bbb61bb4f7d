"""Judges a trained model on the test split: figures, confusion matrix, and a report for people."""
