"""One version of a table in memory: root, leaves, and the lookups over what is live."""
