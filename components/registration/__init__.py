"""Prepares an accepted model's way into the Vertex AI Model Registry: new model or new version, and its evaluation."""
