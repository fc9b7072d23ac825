"""A root and its parts as bytes: header, blocks, rows, statistics, pages."""
