"""Vertex AI: what it would refuse, a run sent to it, and how the run went."""
