"""The bytes of a root and its parts: header, blocks, rows, statistics, pages."""
