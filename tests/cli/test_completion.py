"""`rootline completion`: what `<TAB>` offers, asked by a real bash, and in the words of zsh and fish."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rootline.cli.app import main
from tests.cli.conftest import Run

BASH = """
eval "$(rootline completion bash)"
complete -p rootline
offers() {
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    _rootline_completion rootline
    echo "$*: ${COMPREPLY[*]}"
}
offers rootline tab
offers rootline table describe --war
offers rootline scan demo.
offers rootline scan --warehouse lake demo.f
offers rootline explain stale
unset ROOTLINE_WAREHOUSE
offers rootline scan demo.
"""


@pytest.mark.slow
def test_bash_completes_commands_options_tables_and_codes(lake: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ROOTLINE_")}
    bash = shutil.which("bash")
    assert bash, "install bash"
    done = subprocess.run(
        [bash, "--norc", "-c", BASH],
        cwd=lake.parent,
        env={**kept, "PATH": path, "ROOTLINE_WAREHOUSE": str(lake)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "complete -o default -F _rootline_completion rootline",
        "rootline tab: table",
        "rootline table describe --war: --warehouse",
        "rootline scan demo.: demo.flights",
        "rootline scan --warehouse lake demo.f: demo.flights",
        "rootline explain stale: stale-source",
        "rootline scan demo.: ",
    ]


@pytest.mark.parametrize(
    ("shell", "variables"),
    [
        ("zsh", {"_TYPER_COMPLETE_ARGS": "rootline table describe demo."}),
        ("fish", {"_TYPER_COMPLETE_ARGS": "rootline table describe demo.", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}),
    ],
)
def test_the_script_of_a_shell_asks_as_the_program_answers(
    shell: str,
    variables: dict[str, str],
    lake: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = run("completion", shell).out
    assert all(words in script for words in (f"_ROOTLINE_COMPLETE=complete_{shell}", *variables))
    for name, value in {
        **variables,
        "_ROOTLINE_COMPLETE": f"complete_{shell}",
        "ROOTLINE_WAREHOUSE": str(lake),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["rootline"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (0, None)
    assert "demo.flights" in capsys.readouterr().out


def test_a_lake_that_is_not_there_offers_no_table_and_says_nothing(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for warehouse in (str(tmp_path / "none"), "s3://bucket/tables", "s3:/typo", ""):
        monkeypatch.setenv("ROOTLINE_WAREHOUSE", warehouse)
        monkeypatch.setenv("_ROOTLINE_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", "rootline scan demo.")
        monkeypatch.setenv("COMP_CWORD", "2")
        monkeypatch.setattr(sys, "argv", ["rootline"])
        with pytest.raises(SystemExit):
            main()
        out, err = capsys.readouterr()
        assert (out.strip(), err) == ("", "")
    assert list(tmp_path.iterdir()) == []
