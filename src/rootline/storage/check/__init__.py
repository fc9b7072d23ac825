"""`rootline check`: a table's whole chain read and held against the invariants."""
