"""Row filters: parsing, binding to a schema, and evaluation against statistics and rows."""
