"""Single values as bytes: Avro primitives, bounds, partition values, and the schema of an entry."""
