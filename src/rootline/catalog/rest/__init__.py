"""The Iceberg REST catalog, read side."""
