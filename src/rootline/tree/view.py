"""Views of a table's tree: an outline in numbers, lines of text for `rootline tree`, and an SVG picture.

Owns: the numbers of a root's rows and of its leaves with their delete leaves, the wording of the lines, the drawing.
Does not own: the state that is shown (`table_state`), sending or printing a view.
Invariants:
* Counts are taken from the root's rows. No leaf is read.
* The text has one line for each group of root rows and for each leaf, with ASCII branches and without color.
* The same version gives the same picture, byte for byte. Text from a table is escaped in it. The picture is readable on
  light and dark backgrounds. Its size is bounded for tables of any size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, Final
from xml.sax.saxutils import escape

from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.content_entry import FILE_TYPES, ContentEntry, ContentType, Status
from rootline.tree.state.table_state import TableState


@dataclass(frozen=True, slots=True)
class RootGroup:
    """The root rows of one content type.

    `files`, `rows` and `size_in_bytes` count live entries. `added` and `removed` count the changes of this snapshot.
    """

    content_type: ContentType
    files: int
    rows: int
    added: int
    removed: int
    specs: tuple[int, ...]
    size_in_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LeafOutline:
    """A leaf.

    `dead` counts the removed entries, which the leaf's manifest vector marks, and `newly_dead` those that this snapshot
    removed. `deletes` are the delete leaves that apply to this data leaf only.
    """

    location: str
    content_type: ContentType
    status: Status
    spec_id: int
    entries: int
    dead: int
    newly_dead: int
    rows: int
    size_in_bytes: int
    is_inline: bool
    deletes: tuple[LeafOutline, ...] = ()

    @property
    def live(self) -> int:
        """The number of entries that are not removed."""
        return self.entries - self.dead


@dataclass(frozen=True, slots=True)
class TreeOutline:
    """A version of a table: the root's file rows in groups, and its leaves, with delete leaves below data leaves."""

    table: str
    version: int
    snapshot_id: int
    operation: str
    size_in_bytes: int
    blocks: int
    groups: tuple[RootGroup, ...]
    leaves: tuple[LeafOutline, ...]
    data_files: int
    rows: int
    deleted_rows: int


def outline_of(state: TableState) -> TreeOutline:
    """The outline of a version from its state."""
    return outline_of_root(state.root, state.live.dead)


def outline_of_root(root: Root, dead: Mapping[str, Sized]) -> TreeOutline:
    """The outline of a version from its root. `dead` has the dead ordinals by leaf location (`manifest_vectors`)."""
    rows = [row.entry for row in root.rows]
    header = root.header
    return TreeOutline(
        table=header.table,
        version=header.version,
        snapshot_id=header.snapshot.snapshot_id,
        operation=header.snapshot.operation.value,
        size_in_bytes=root.size_in_bytes,
        blocks=len(root.blocks),
        groups=tuple(group for kind in FILE_TYPES if (group := _group(kind, rows)) is not None),
        leaves=_leaves(dead, rows),
        data_files=header.totals.data_files,
        rows=header.totals.rows,
        deleted_rows=header.totals.deleted_rows,
    )


def outline_json(outline: TreeOutline) -> dict[str, Any]:
    """The outline as JSON, with types and states as lower-case words."""
    return asdict(outline, dict_factory=_fields)


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value.name.lower() if isinstance(value, Enum) else value for name, value in pairs}


def _group(kind: ContentType, rows: list[ContentEntry]) -> RootGroup | None:
    members = [entry for entry in rows if entry.content_type is kind]
    live = [entry for entry in members if entry.version_info.status is not Status.DELETED]
    if not members:
        return None
    return RootGroup(
        content_type=kind,
        files=len(live),
        rows=sum(entry.record_count for entry in live),
        added=sum(entry.version_info.status is Status.ADDED for entry in live),
        removed=len(members) - len(live),
        specs=tuple(sorted({entry.partition_spec_id for entry in live})),
        size_in_bytes=sum(entry.file_size_in_bytes or 0 for entry in live),
    )


def _leaves(dead: Mapping[str, Sized], rows: list[ContentEntry]) -> tuple[LeafOutline, ...]:
    vectors: dict[str, list[ContentEntry]] = {}
    for entry in rows:
        if entry.content_type is ContentType.MANIFEST_DV and entry.version_info.status is not Status.DELETED:
            vectors.setdefault(entry.location, []).append(entry)
    affiliated: dict[str, list[LeafOutline]] = {}
    data, loose = list[ContentEntry](), list[LeafOutline]()
    locations = {entry.location for entry in rows if entry.content_type is ContentType.DATA_MANIFEST}
    for entry in rows:
        if entry.version_info.status is Status.DELETED:
            continue
        if entry.content_type is ContentType.DATA_MANIFEST:
            data.append(entry)
        elif entry.content_type is ContentType.DELETE_MANIFEST:
            leaf = _leaf(dead, entry, vectors.get(entry.location, []), ())
            if entry.referenced_file in locations:
                affiliated.setdefault(entry.referenced_file or "", []).append(leaf)
            else:
                loose.append(leaf)
    return (
        *(
            _leaf(dead, entry, vectors.get(entry.location, []), tuple(affiliated.get(entry.location, ())))
            for entry in data
        ),
        *loose,
    )


def _leaf(
    dead: Mapping[str, Sized], entry: ContentEntry, vectors: list[ContentEntry], deletes: tuple[LeafOutline, ...]
) -> LeafOutline:
    stats = entry.manifest_stats
    rows = 0 if stats is None else stats.existing_rows_count + stats.added_rows_count
    return LeafOutline(
        location=entry.location,
        content_type=entry.content_type,
        status=entry.version_info.status,
        spec_id=entry.partition_spec_id,
        entries=entry.record_count,
        dead=len(dead.get(entry.location, ())),
        newly_dead=sum(vector.record_count for vector in vectors if vector.version_info.status is Status.ADDED),
        rows=rows,
        size_in_bytes=entry.file_size_in_bytes or 0,
        is_inline=all(vector.file_size_in_bytes is None for vector in vectors),
        deletes=deletes,
    )


_GROUP_WORDS: Final = {
    ContentType.DATA: "data files",
    ContentType.POSITION_DELETE: "deletion vectors",
    ContentType.EQUALITY_DELETE: "equality deletes",
}


def tree_text(state: TableState, *, leaves_max: int = 200) -> str:
    """The tree of a version as text. It has at most `leaves_max` leaves, and one line for the rest."""
    outline = outline_of(state)
    lines = [
        f"{outline.table}  version {outline.version}  {outline.operation}  snapshot {outline.snapshot_id}",
        f"{outline.data_files:,} data files, {outline.rows:,} rows, {outline.deleted_rows:,} of them deleted",
        f"root  {outline.size_in_bytes:,} bytes, {outline.blocks} blocks",
    ]
    branches = [[_group_line(group)] for group in outline.groups]
    branches += [_leaf_lines(leaf) for leaf in outline.leaves[:leaves_max]]
    rest = outline.leaves[leaves_max:]
    if rest:
        branches.append([f"and {len(rest):,} more leaves with {sum(leaf.live for leaf in rest):,} live entries"])
    for number, branch in enumerate(branches):
        is_last = number == len(branches) - 1
        lines.append(f"{'`-' if is_last else '|-'} {branch[0]}")
        lines += [f"{'  ' if is_last else '| '} {line}" for line in branch[1:]]
    return "\n".join(lines) + "\n"


def group_words(group: RootGroup) -> str:
    """The noun for a group of root rows, in the plural."""
    return _GROUP_WORDS[group.content_type]


def _group_line(group: RootGroup) -> str:
    change = "".join(
        f", {count:,} {word}" for count, word in ((group.added, "added"), (group.removed, "removed")) if count
    )
    return f"{group.files:,} {group_words(group)} in the root, {group.rows:,} rows{change}"


def _leaf_lines(leaf: LeafOutline) -> list[str]:
    kind = "data leaf" if leaf.content_type is ContentType.DATA_MANIFEST else "delete leaf"
    parts = [f"{kind} {short_name(leaf.location)}", f"{leaf.live:,} of {leaf.entries:,} entries live"]
    if leaf.newly_dead:
        parts.append(f"{leaf.newly_dead:,} removed here")
    parts.append(f"{leaf.rows:,} rows, spec {leaf.spec_id}, {leaf.size_in_bytes:,} bytes")
    if leaf.status is Status.ADDED:
        parts.append("added here")
    lines = [", ".join(parts)]
    lines += [f"`- {line}" for child in leaf.deletes for line in _leaf_lines(child)]
    return lines


def short_name(location: str) -> str:
    """The first eight characters of a leaf's file name."""
    return location.rsplit("/", 1)[-1][:8]


_WIDTH: Final = 960
_MARGIN: Final = 24
_INNER: Final = _WIDTH - 2 * _MARGIN
_SQUARE: Final = 9  # the square of one root row, including the gap
_SQUARES_MAX: Final = 400  # per group; with more rows, one square stands for several
_LEAVES_MAX: Final = 96
_COLUMNS: Final = 4
_GAP: Final = 12
_CARD_WIDTH: Final = (_INNER - (_COLUMNS - 1) * _GAP) // _COLUMNS
_CARD_HEIGHT: Final = 66
_CHILD_HEIGHT: Final = 34

_LIGHT: Final = {
    "ground": "#ffffff", "card": "#f4f6f8", "line": "#8a96a3", "text": "#1b2733", "faint": "#55616e",
    "live": "#2f6fb2", "added": "#2c8a4b", "dead": "#b9c2cb", "removed": "#c2452d", "deletes": "#9a6a00",
}  # fmt: skip
_DARK: Final = {
    "ground": "#12181f", "card": "#1c252f", "line": "#6c7a88", "text": "#e6edf3", "faint": "#a3b0bd",
    "live": "#6aa9ea", "added": "#5cc27d", "dead": "#46525e", "removed": "#f0765c", "deletes": "#d9a441",
}  # fmt: skip


def _colours(palette: dict[str, str]) -> str:
    """The style rules of a palette, without CSS variables, which some SVG viewers do not support."""
    filled = "".join(f".{name}{{fill:{palette[name]}}}" for name in palette if name not in ("line", "text"))
    line = palette["line"]
    return f"text{{fill:{palette['text']}}}{filled}.card{{stroke:{line}}}.link{{stroke:{line};fill:none}}"


_STYLE: Final = (
    "text{font:12px ui-sans-serif,system-ui,sans-serif}.title{font-size:16px;font-weight:600}"
    ".mono{font-family:ui-monospace,monospace}"
    f"{_colours(_LIGHT)}@media (prefers-color-scheme:dark){{{_colours(_DARK)}}}"
)


def tree_svg(state: TableState) -> str:
    """A self-contained SVG picture of a version."""
    outline = outline_of(state)
    body: list[str] = []
    bottom = _draw_root(outline, body)
    bottom = _draw_leaves(outline.leaves, bottom, body) if outline.leaves else bottom
    bottom = _draw_legend(bottom + 30, body)
    title = escape(f"{outline.table}, version {outline.version}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {bottom}" width="{_WIDTH}" height="{bottom}" '
        f'role="img" aria-label="{_attribute(f"The tree of {outline.table}, version {outline.version}")}">'
        f"<title>{title}</title><style>{_STYLE}</style>"
        f'<rect class="ground" width="{_WIDTH}" height="{bottom}"/>{"".join(body)}</svg>\n'
    )


def _draw_root(outline: TreeOutline, body: list[str]) -> int:
    cursor = _MARGIN + 30
    inside: list[str] = [
        _text(_MARGIN + 16, cursor, f"{_shortened(outline.table)} · root {outline.version}", "title"),
        _text(
            _MARGIN + 16,
            cursor + 20,
            f"{outline.operation} · {outline.data_files:,} data files · {outline.rows:,} rows, "
            f"{outline.deleted_rows:,} deleted · {outline.size_in_bytes:,} bytes in {outline.blocks} blocks",
            "faint",
        ),
    ]
    cursor += 36
    for group in outline.groups:
        cursor = _draw_group(group, cursor, inside)
    if not outline.groups:
        inside.append(_text(_MARGIN + 16, cursor + 12, "no rows of its own", "faint"))
        cursor += 20
    body.append(_rect(_MARGIN, _MARGIN, _INNER, cursor - _MARGIN + 8, "card", radius=8))
    body.extend(inside)
    return cursor + 8


def _draw_group(group: RootGroup, top: int, body: list[str]) -> int:
    total = group.files + group.removed
    scale = -(-total // _SQUARES_MAX)
    note = f" · one square = {scale} rows" if scale > 1 else ""
    change = f" · {group.added:,} added" if group.added else ""
    change += f" · {group.removed:,} removed" if group.removed else ""
    label = f"{group.files:,} {group_words(group)} · {group.rows:,} rows{change}{note}"
    body.append(_text(_MARGIN + 16, top + 14, label))
    old = "live" if group.content_type is ContentType.DATA else "deletes"
    counts = ((old, group.files - group.added), ("added", group.added), ("removed", group.removed))
    squares = [style for style, count in counts for _ in range(-(-count // scale))]
    per_line = (_INNER - 32) // _SQUARE
    for number, style in enumerate(squares):
        line, column = divmod(number, per_line)
        body.append(_rect(_MARGIN + 16 + column * _SQUARE, top + 22 + line * _SQUARE, 7, 7, style))
    lines = -(-len(squares) // per_line)
    return top + 30 + lines * _SQUARE


def _draw_leaves(leaves: tuple[LeafOutline, ...], root_bottom: int, body: list[str]) -> int:
    shown = leaves[:_LEAVES_MAX]
    top = root_bottom + 34
    trunk, branch = _WIDTH // 2, root_bottom + 16
    first, last = _card_left(0) + _CARD_WIDTH // 2, _card_left(min(len(shown), _COLUMNS) - 1) + _CARD_WIDTH // 2
    body.append(_line(f"M{trunk} {root_bottom}V{branch}M{min(first, trunk)} {branch}H{max(last, trunk)}"))
    bottom = top
    for start in range(0, len(shown), _COLUMNS):
        line = shown[start : start + _COLUMNS]
        height = 0
        for column, leaf in enumerate(line):
            left = _card_left(column)
            if start == 0:
                body.append(_line(f"M{left + _CARD_WIDTH // 2} {branch}V{top}"))
            height = max(height, _draw_leaf(leaf, left, top, body))
        bottom = top + height
        top = bottom + _GAP
    rest = leaves[_LEAVES_MAX:]
    if rest:
        label = f"and {len(rest):,} more leaves with {sum(leaf.live for leaf in rest):,} live entries"
        body.append(_text(_MARGIN, bottom + 22, label, "faint"))
        bottom += 28
    return bottom


def _draw_leaf(leaf: LeafOutline, left: int, top: int, body: list[str]) -> int:
    kind = "data leaf" if leaf.content_type is ContentType.DATA_MANIFEST else "delete leaf"
    style = "live" if leaf.content_type is ContentType.DATA_MANIFEST else "deletes"
    children = leaf.deletes[:4]
    height = _CARD_HEIGHT + (len(children) + (len(leaf.deletes) > len(children))) * _CHILD_HEIGHT
    body.append(f"<g><title>{escape(leaf.location)}</title>")
    body.append(_rect(left, top, _CARD_WIDTH, height, "card", radius=6))
    body.append(_text(left + 10, top + 18, f"{kind} {short_name(leaf.location)}", "mono"))
    body.append(_text(left + 10, top + 35, f"{leaf.live:,} of {leaf.entries:,} live · spec {leaf.spec_id}", "faint"))
    _draw_bar(leaf, left + 10, top + 45, _CARD_WIDTH - 20, style, body)
    for number, child in enumerate(children):
        child_top = top + _CARD_HEIGHT + number * _CHILD_HEIGHT
        label = f"deletes {short_name(child.location)} · {child.live:,} of {child.entries:,}"
        body.append(_text(left + 10, child_top + 10, label, "faint"))
        _draw_bar(child, left + 10, child_top + 17, _CARD_WIDTH - 20, "deletes", body)
    if len(leaf.deletes) > len(children):
        label = f"and {len(leaf.deletes) - len(children)} more delete leaves"
        body.append(_text(left + 10, top + height - 14, label, "faint"))
    body.append("</g>")
    return height


def _draw_bar(leaf: LeafOutline, left: int, top: int, width: int, style: str, body: list[str]) -> None:
    """Draw the bar of a leaf: live entries, earlier dead entries, and entries that this snapshot removes."""
    entries = max(leaf.entries, 1)
    newly = _share(leaf.newly_dead, entries, width)
    dead = _share(leaf.dead - leaf.newly_dead, entries, width)
    live = width - newly - dead if leaf.live else 0
    at = left
    for length, name in ((live, style), (dead, "dead"), (newly, "removed")):
        if length > 0:
            body.append(_rect(at, top, length, 10, name))
            at += length


def _share(part: int, whole: int, width: int) -> int:
    """The width of `part` in pixels, at least 2 unless it is zero."""
    return 0 if part <= 0 else max(2, part * width // whole)


def _draw_legend(top: int, body: list[str]) -> int:
    left = _MARGIN
    for style, label in (
        ("live", "live data"),
        ("deletes", "live deletes"),
        ("added", "added by this snapshot"),
        ("removed", "removed by this snapshot"),
        ("dead", "masked by a manifest vector"),
    ):
        body.append(_rect(left, top - 9, 10, 10, style))
        body.append(_text(left + 16, top, label, "faint"))
        left += 40 + 7 * len(label)
    return top + _MARGIN


def _card_left(column: int) -> int:
    return _MARGIN + column * (_CARD_WIDTH + _GAP)


def _shortened(name: str, chars_max: int = 72) -> str:
    return name if len(name) <= chars_max else f"{name[: chars_max - 1]}…"


def _text(left: int, baseline: int, text: str, style: str = "") -> str:
    named = f' class="{style}"' if style else ""
    return f'<text x="{left}" y="{baseline}"{named}>{escape(text)}</text>'


def _rect(left: int, top: int, width: int, height: int, style: str, *, radius: int = 1) -> str:
    return f'<rect class="{style}" x="{left}" y="{top}" width="{width}" height="{height}" rx="{radius}"/>'


def _line(path: str) -> str:
    return f'<path class="link" d="{path}"/>'


def _attribute(text: str) -> str:
    return escape(text, {'"': "&quot;"})
