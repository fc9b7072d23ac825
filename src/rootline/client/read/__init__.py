"""Reading a table: scans, versions, and what changed between them."""
