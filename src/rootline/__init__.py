"""Rootline: one commit is one object.

Owns: the public names, handed on lazily (PEP 562) so that a Spark executor loads only what it uses.
Does not own: any behaviour.
Invariants: importing `rootline` imports nothing else.
"""
