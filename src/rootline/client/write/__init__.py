"""Adding to a table: data files with statistics, intents, producers."""
