"""The catalog for other engines: versions of a table as Iceberg V2 and V3 metadata, made on demand and stored in the
bucket.

Owns: exports, adoption of tables that Iceberg wrote, the responses of the REST catalog. Does not own: the store
(adapters), commits (`rootline.coordinator`), a table's content (`rootline.tree`).
Invariants: no code here writes a root. An export is made from the roots alone. Metadata is never labelled as format 4.
"""
