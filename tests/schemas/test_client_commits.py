"""The word of a client's commit: what is stated is read, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from rootline.schemas.client_commits import (
    CLIENT,
    MOVED_JOBS_MAX,
    SNAPSHOTS_MAX,
    ClientCommit,
    ClientSnapshot,
    client_snapshots_in,
    client_snapshots_word,
)
from rootline.schemas.errors import Invalid

DIGEST = "ab" * 32


def word(**members: object) -> Mapping[str, str]:
    """A summary with the word, and with a word `step` beside it."""
    return {"step": "12", CLIENT: json.dumps({"snapshots": [[7, "append"]], "digest": DIGEST} | members)}


def test_what_a_commit_states_is_read_again() -> None:
    two = (ClientSnapshot(7, "append"), ClientSnapshot(2**63 - 1, "overwrite"))
    commit = ClientCommit(two, DIGEST, {"query é": ("step",)})
    assert ClientCommit.of({"step": "12", CLIENT: commit.to_json()}) == commit
    assert ClientCommit.of({"step": "12"}) is None


@pytest.mark.parametrize(
    "members",
    [
        {"snapshots": []},
        {"snapshots": [[7]]},
        {"snapshots": [[7, "append"], [7, "append"]]},
        {"snapshots": [[0, "append"]]},
        {"snapshots": [[-1, "append"]]},
        {"snapshots": [[2**63, "append"]]},
        {"snapshots": [[7.0, "append"]]},
        {"snapshots": [["7", "append"]]},
        {"snapshots": [[7, "added"]]},
        {"snapshots": [[number, "append"] for number in range(1, SNAPSHOTS_MAX + 2)]},
        {"digest": "ab"},
        {"digest": None},
        {"digest": "zz" * 32},
        {"progress": []},
        {"progress": {"job": []}},
        {"progress": {"job": "step"}},
        {"progress": {"job": ["other"]}},
        {"progress": {"job": [CLIENT]}},
        {"progress": {"job": [["step"]]}},
        {"progress": {f"job-{number}": ["step"] for number in range(MOVED_JOBS_MAX + 1)}},
        {"later": 1},
    ],
)
def test_a_word_that_states_anything_else_is_refused_with_a_next_step(members: Mapping[str, object]) -> None:
    with pytest.raises(Invalid, match=r"docs/intents\.md") as caught:
        ClientCommit.of(word(**members))
    assert caught.value.code == "intent-malformed"


@pytest.mark.parametrize("text", ["", "[]", "null", "{", "[" * 100_000, '{"digest":"' + DIGEST + '"}'])
def test_a_word_that_is_no_such_object_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        ClientCommit.of({CLIENT: text})


def test_a_root_lists_snapshots_that_can_be_read_again() -> None:
    listed = (ClientSnapshot(7, "append"), ClientSnapshot(8, "replace"))
    assert client_snapshots_in({"rootline.client-snapshots": client_snapshots_word(listed)}) == listed
    assert client_snapshots_in({}) == ()
