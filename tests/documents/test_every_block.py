"""Every block of code in the documents is run by a test, or is in the list of those that cannot be, with the reason."""

from __future__ import annotations

import json
import re
import shlex

from rootline.cli.app import command_tree
from tests.documents.blocks import HOUSE, Block, blocks_of, pages, statements
from tests.documents.run_where import NOT_RUN, RUN_BY, RUN_WHOLE, is_listed, left_out

COMMANDS = {"python", "console", "shell", "sql", "json", "properties", "toml"}
PICTURES = {"mermaid", "text", ""}
SPAN = re.compile(r"`(rootline [a-z][^`\n]*)`")


def every_block() -> list[Block]:
    return [block for page in pages() for block in blocks_of(page)]


def is_code(block: Block) -> bool:
    return block.language in COMMANDS or block.first_line.startswith(("rootline ", "dep_delay "))


def test_every_block_is_run_by_a_test_or_has_a_reason() -> None:
    unknown = {block.language for block in every_block()} - COMMANDS - PICTURES
    assert unknown == set(), "languages of which nothing says how they are run"
    waiting = [
        block.name
        for block in every_block()
        if is_code(block)
        and not left_out(block)
        and not any(is_listed(block, listed) for listed in RUN_BY)
        and not (block.page in RUN_WHOLE and block.language in ("python", "console", "shell"))
    ]
    assert waiting == [], "run them (tests/documents/run_where.py), or say there why they cannot be"


def test_every_entry_of_the_lists_is_still_needed() -> None:
    found = every_block()
    both = NOT_RUN.keys() & RUN_BY.keys()
    gone = [listed for listed in (*RUN_BY, *NOT_RUN) if not any(is_listed(block, listed) for block in found)]
    assert (gone, both) == ([], set())
    assert all(NOT_RUN.values())


def test_the_files_that_the_lists_name_exist_and_name_the_page() -> None:
    for page, file in {*RUN_WHOLE.items(), *((listed[0], file) for listed, file in RUN_BY.items())}:
        assert page.rpartition("/")[2] in (HOUSE / file).read_text() or "README" in page, f"{file} does not name {page}"


def _options(words: list[str]) -> tuple[set[str], bool]:
    """The options of the command that the words begin with, and whether there is one."""
    command = command_tree()
    for word in words:
        inner = getattr(command, "commands", {}).get(word)
        if inner is None:
            break
        command = inner
    known = {option for item in command.params for option in item.opts} | {"-h", "--help"}
    return known, not getattr(command, "commands", {})


def test_every_option_that_the_documents_name_is_one_of_its_command() -> None:
    spans = [(page, span) for page in pages() for span in SPAN.findall((HOUSE / page).read_text())]
    lines = [
        (block.page, line)
        for block in every_block()
        if is_code(block) and block.language != "python"
        for line in statements(block.text)
        if line.startswith("rootline ")
    ]
    assert len(spans) > 50
    for page, text in [*spans, *lines]:
        words = shlex.split(text.replace("'", " "), comments=True)[1:]
        known, whole = _options(words)
        named = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert not named or not whole or named <= known, f"{page}: {text}"


def test_every_example_in_json_is_an_intent() -> None:
    from rootline.schemas.bytes.intent_codec import decode_intent

    for block in blocks_of("docs/intents.md", "json"):
        joined = block.text.replace("\n", " ").replace("…64 digits…", "0" * 64).replace("9f0c…", "9f0c" + "0" * 60)
        intent = decode_intent(joined.encode())
        assert intent.definition is not None
        assert json.loads(intent.definition)["changes"]
