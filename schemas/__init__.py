"""The data that crosses the log or is stored in the bucket: models, field ids, codecs, object keys, errors.

Owns: the bytes and the vocabulary. Does not own: the effect of a batch of intents on a table (`rootline.tree`), any
I/O.
Invariants: pure values and arithmetic only. A codec proves what it decodes or raises `Corrupt`.
"""
