"""The kinds of intents, one file each, and the rules that only they use."""
