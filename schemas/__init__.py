"""What crosses the log or is stored in the bucket: models, field ids, codecs, object keys, errors.

Owns: the bytes and the words. Does not own: what a batch of intents does to a table (`rootline.tree`), any I/O.
Invariants: pure values and arithmetic only; a codec proves what it decodes or raises `Corrupt`.
"""
