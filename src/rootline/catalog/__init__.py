"""What other engines read: versions of a table as Iceberg V2 and V3 metadata, made on demand and kept in the bucket.

Owns: exports, adoption of tables that Iceberg wrote, the answers of the REST catalog. Does not own: which store
(adapters), commits (`rootline.coordinator`), what is in a table (`rootline.tree`).
Invariants: nothing here writes a root; an export follows from the roots alone; nothing is ever labelled as format 4.
"""
