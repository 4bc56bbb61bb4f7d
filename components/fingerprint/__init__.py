"""Fingerprints what prepare will read, so that its cached result is of these very files."""
