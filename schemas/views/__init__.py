"""Views: their metadata as values and as JSON, and what changes make of it."""
