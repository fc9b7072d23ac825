"""The parts that every writing request uses: the open lake, the catalog that answers, the deadline of a verdict.

Owns: these parts. Does not own: opening the lake (`rootline.cli`), requests (`namespaces`, `tables`, `views`).
Invariants: all of them run on the catalog's event loop. A request without a verdict in time is an unknown outcome, and
never a refusal.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rootline.catalog.rest.catalog import RestCatalog
from rootline.client.session import Session, WriterStamp


@dataclass(frozen=True, slots=True)
class Writing:
    """The lake, and the catalog that serves it. `timeout_s` is the longest wait for a verdict, in seconds."""

    session: Session
    catalog: RestCatalog
    timeout_s: float
    stamp: WriterStamp = field(default_factory=WriterStamp)
