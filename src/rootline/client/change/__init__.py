"""Changes to what a table holds, other than adding to it."""
