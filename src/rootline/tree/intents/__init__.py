"""The kinds of intents, one file each."""
