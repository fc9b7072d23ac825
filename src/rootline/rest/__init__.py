"""Writing through the Iceberg REST catalog: an engine's request becomes an intent, and its verdict the response."""
