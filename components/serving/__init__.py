"""Answers predictions of an exported model over HTTP, as Vertex AI asks of a custom container."""
