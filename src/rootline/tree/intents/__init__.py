"""The kinds of intents, by subject."""
