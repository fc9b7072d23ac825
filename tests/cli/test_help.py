"""What `--help` says, of every command."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from rootline.cli.app import command_named, command_tree
from rootline.cli.command_table import HEADINGS
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
    listed = [entry for entries in HEADINGS.values() for entry in entries]
    assert sorted(entry.name for entry in listed) == sorted(command_tree().commands)
    shown = run("--help").out
    assert [heading for heading in HEADINGS if f"\n{heading}:\n" not in shown] == []
    assert shown.count("...") == 1, "in the line of usage"
    sentences = {name: command.get_short_help_str(1_000) for name, command in command_tree().commands.items()}
    assert {entry.name: entry.line for entry in listed} == sentences


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if hasattr(command, "commands")])
def test_the_list_of_a_groups_commands_cuts_no_sentence(run: Run, name: str) -> None:
    assert run(*name.split()[1:], "--help").out.count("...") == 1, "in the line of usage"


@pytest.mark.parametrize("name", [name for name in COMMANDS if name.count(" ") == 1])
def test_a_command_that_is_named_is_the_same_without_the_others(name: str) -> None:
    part = name.removeprefix("rootline ")
    alone = command_named.__wrapped__(part)
    found, expected = dict(_commands(alone, name)), dict(_commands(COMMANDS[name], name))
    assert {at: [item.opts for item in command.params] for at, command in found.items()} == {
        at: [item.opts for item in command.params] for at, command in expected.items()
    }


def test_a_command_that_is_named_loads_no_module_of_the_others() -> None:
    program = (
        "import sys; from rootline.cli.app import command_tree; "
        "tree = command_tree(); tree.list_commands(None); loaded = set(sys.modules); tree.commands['scan']; "
        "print([name for name in loaded if name.endswith('_commands')], "
        "[name for name in sys.modules if name.startswith('rootline.cli.') and name not in loaded])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[] ['rootline.cli.read_commands']\n"


def test_words_that_name_no_command_have_all_to_be_compared_with(run: Run) -> None:
    mistyped = run("tabel")
    assert (mistyped.code, "Did you mean 'table', 'trace'?" in mistyped.err) == (2, True)
    assert run("--version").code == 0
