"""Apply a batch of intents: the next root and one verdict per intent."""
