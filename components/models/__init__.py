"""What is trained. A model takes a dict of batched features and returns float32 logits of shape [batch, classes]."""
