"""The roles of the catalog's clients, and what each may do.

Owns: roles and their order. Does not own: tokens (`http_settings`), which role a request needs (the routes).
Invariants: a role may do what every role below it may do.
"""

from __future__ import annotations

from enum import IntEnum


class Role(IntEnum):
    """What a client may do."""

    READ = 1
    """Read tables and views."""
    WRITE = 2
    """Also commit, create and drop."""
    ADMIN = 3
    """Also delete the files of a table, and register tables that others wrote."""
