"""Creating, changing and dropping namespaces for engines.

Owns: the specification's requests and responses about namespaces. Does not own: the rules of namespaces
(`rootline.client.lake_names`).
Invariants: a change of properties reports each name once, and never both as changed and as missing.
"""

from __future__ import annotations

from rootline.catalog.rest.responses import bad_request, json_body, namespace_body, no_such_namespace
from rootline.client.lake_names import change_properties, create_namespace, drop_namespace, properties_of
from rootline.rest.bodies import NamespaceChange, NamespaceToCreate
from rootline.rest.refusals import about
from rootline.rest.writing import Writing
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import NamespaceName, namespace_name


async def create(writing: Writing, asked: NamespaceToCreate) -> bytes:
    """Create a namespace. Raises `Refusal`: the name is invalid, or a namespace has it."""
    name = namespace_name(".".join(asked.namespace))
    session, properties = writing.session, dict(asked.properties)
    with about(name):
        await create_namespace(session, name, properties, may_exist=False, timeout_s=writing.timeout_s)
    return namespace_body(name, properties)


async def change(writing: Writing, namespace: str, asked: NamespaceChange) -> bytes:
    """Set and remove properties of a namespace."""
    both = set(asked.removals) & set(asked.updates)
    if both:
        raise bad_request(f"removals and updates both name {sorted(both)[0]!r:.80}; name a property in one of them")
    name = _known(namespace)
    with about(name):
        before = await properties_of(writing.session, name)
        updates, session = dict(asked.updates), writing.session
        await change_properties(session, name, updates, asked.removals, timeout_s=writing.timeout_s)
    removed = [key for key in dict.fromkeys(asked.removals) if key in before]
    missing = [key for key in dict.fromkeys(asked.removals) if key not in before]
    return json_body({"updated": sorted(asked.updates), "removed": removed, "missing": missing})


async def drop(writing: Writing, namespace: str) -> None:
    """Drop a namespace, which must be empty."""
    name = _known(namespace)
    with about(name):
        await drop_namespace(writing.session, name, timeout_s=writing.timeout_s)


def _known(namespace: str) -> NamespaceName:
    try:
        return namespace_name(namespace)
    except Invalid:
        raise no_such_namespace(namespace) from None
