"""The picture and the text of a tree show what the root and its leaves hold."""

from __future__ import annotations

from xml.etree import ElementTree

from rootline.maintenance.limits import FlushLimits
from rootline.schemas.content_entry import ContentType
from rootline.tree.view import outline_of, tree_svg, tree_text
from tests.maintenance.table_builder import TableBuilder

SVG = "{http://www.w3.org/2000/svg}"


async def a_grown_table() -> TableBuilder:
    builder = TableBuilder()
    await builder.create()
    await builder.append(*range(30))
    await builder.append(*range(30, 38), spec_id=1)
    await builder.delete_rows({1: [1], 32: [2, 3]})
    await builder.flush()
    await builder.append(*range(40, 60))
    await builder.delete_rows({2: [1]})
    await builder.remove(4, 5, 41)
    return builder


async def test_an_outline_counts_rows_of_the_root_and_entries_of_leaves() -> None:
    builder = await a_grown_table()
    outline = outline_of(builder.state)
    assert [(group.content_type, group.files, group.added, group.removed) for group in outline.groups] == [
        (ContentType.DATA, 19, 0, 1),
        (ContentType.POSITION_DELETE, 1, 0, 0),
    ]
    assert [(leaf.entries, leaf.live, leaf.newly_dead) for leaf in outline.leaves] == [(30, 28, 2), (8, 8, 0)]
    assert [len(leaf.deletes) for leaf in outline.leaves] == [1, 1]
    assert outline.data_files == 55


async def test_text_has_a_line_for_each_group_and_leaf() -> None:
    builder = await a_grown_table()
    lines = tree_text(builder.state).splitlines()
    assert lines[0].startswith("demo.flights  version 7  delete")
    assert "19 data files in the root, 19,000 rows, 1 removed" in lines[3]
    assert any("28 of 30 entries live, 2 removed here" in line for line in lines)
    assert sum("delete leaf" in line for line in lines) == 2
    assert all(line.isascii() for line in lines)


async def test_a_long_list_of_leaves_ends_with_a_line_for_the_rest() -> None:
    builder = await a_grown_table()
    assert tree_text(builder.state, leaves_max=1).splitlines()[-1] == "`- and 1 more leaves with 8 live entries"


async def test_a_picture_is_well_formed_and_names_every_leaf() -> None:
    builder = await a_grown_table()
    picture = ElementTree.fromstring(tree_svg(builder.state))
    assert picture.tag == f"{SVG}svg"
    titles = {title.text for title in picture.iter(f"{SVG}title")}
    assert {row.location for row in builder.rows_of(ContentType.DATA_MANIFEST)} <= titles
    text = " ".join(item.text or "" for item in picture.iter(f"{SVG}text"))
    assert "28 of 30 live" in text


async def test_a_picture_of_hundreds_of_rows_and_leaves_stays_small() -> None:
    builder = TableBuilder()
    await builder.create()
    await builder.append(*range(300))
    await builder.committed(await builder.flush_intent(builder.plan(FlushLimits(data_files=1, leaf_entries=2))))
    await builder.append(*range(300, 1_500))
    picture = tree_svg(builder.state)
    assert len(picture) < 150_000
    assert "one square = 3 rows" in picture
    assert "more leaves with" in picture


async def test_a_picture_of_an_empty_table_says_so() -> None:
    builder = TableBuilder()
    await builder.create()
    assert "no rows of its own" in tree_svg(builder.state)


async def test_the_same_version_gives_the_same_picture() -> None:
    builder = await a_grown_table()
    assert tree_svg(builder.state) == tree_svg(builder.state)
