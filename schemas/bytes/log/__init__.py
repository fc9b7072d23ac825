"""Intents, verdicts and dead letters as they cross the log."""
