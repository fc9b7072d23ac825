"""A table's versions made into Iceberg metadata, on demand."""
