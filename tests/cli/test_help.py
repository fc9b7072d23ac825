"""What `--help` says, of every command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rootline.cli.app import GROUPS, command_tree
from tests.cli.conftest import Run


def _commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    yield name, command
    for part, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, f"{name} {part}")


ONE_OF_SEVERAL = {
    *("--warehouse", "--svg"),
    *("--timestamp", "--snapshot-id", "--tag"),
    *("--intent", "--file", "--writer", "--sequence"),
}
"""Without them something else is given: the environment variable, text, another way to name the same thing."""
COMMANDS = dict(_commands(command_tree(), "rootline"))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_every_option_is_explained_in_a_sentence(name: str) -> None:
    command = COMMANDS[name]
    texts = {name: command.help} | {item.name: item.help for item in command.params if item.name != "help"}
    unclear = {key: text for key, text in texts.items() if not text or not text.rstrip().endswith(".")}
    assert unclear == {}


@pytest.mark.parametrize("name", COMMANDS)
def test_an_option_that_may_be_left_out_says_what_counts_then(name: str) -> None:
    options = [item for item in COMMANDS[name].params if item.opts[0].startswith("--") and not item.required]
    open_ones = [item for item in options if item.default is None and item.opts[0] not in ONE_OF_SEVERAL]
    assert [item.opts[0] for item in open_ones if "Default: " not in item.help] == []


def test_the_list_of_commands_has_each_of_them_once_under_a_heading_and_cuts_no_sentence(run: Run) -> None:
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(command_tree().commands)
    shown = run("--help").out
    assert [heading for heading in GROUPS if f"\n{heading}:\n" not in shown] == []
    assert shown.count("...") == 1, "in the line of usage"


@pytest.mark.parametrize("name", [name for name in COMMANDS if name.count(" ") == 1])
def test_a_command_that_is_named_is_the_same_without_the_others(name: str) -> None:
    part = name.removeprefix("rootline ")
    alone = command_tree(part)
    assert [*alone.commands] == [part]
    assert [item.opts for item in alone.params] == [item.opts for item in command_tree().params]
    found, expected = dict(_commands(alone.commands[part], name)), dict(_commands(COMMANDS[name], name))
    assert {at: [item.opts for item in command.params] for at, command in found.items()} == {
        at: [item.opts for item in command.params] for at, command in expected.items()
    }


def test_words_that_name_no_command_have_all_to_be_compared_with() -> None:
    assert (
        command_tree("tabel").commands.keys()
        == command_tree("--version").commands.keys()
        == command_tree().commands.keys()
    )
