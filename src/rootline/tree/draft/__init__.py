"""A table while a batch is applied, and the changes of its accepted intents."""
