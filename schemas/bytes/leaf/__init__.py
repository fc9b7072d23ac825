"""A leaf manifest as Parquet, and in memory."""
