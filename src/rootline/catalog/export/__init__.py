"""Making Iceberg metadata of a table's versions, on demand."""
