"""Where is my data: tracing intents and files, and dead letters."""
