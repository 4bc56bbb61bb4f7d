"""Exports the best checkpoint as a SavedModel that takes what a client has, proven in a fresh process."""
