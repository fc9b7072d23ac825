"""A batch of intents becomes the next root and a verdict for each."""
