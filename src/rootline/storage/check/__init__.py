"""`rootline check`: a table's whole chain, read and checked against the invariants."""
