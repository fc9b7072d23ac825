"""A URL that names no lake or no log is refused by `connect`, with what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from rootline.connect import EmbeddableLake, connect
from rootline.schemas.errors import Invalid


@pytest.mark.parametrize(
    ("warehouse", "log", "advice"),
    [
        ("s3:/bucket", None, "write s3:// with two slashes, or ./s3:/bucket"),
        ("S3:bucket/x", None, "with two slashes"),
        ("s3:///prefix", None, "s3://bucket/prefix"),
        ("gs://bucket", None, "use a path, file:///dir, s3://bucket/prefix"),
        ("kafka://host:9092", None, "is a log, not a warehouse"),
        ("file://host/lake", None, "with three slashes"),
        ("{file}", None, "is a file: a warehouse is a folder"),
        ("{folder}", "kafka://host", "'host' is not host:port"),
        ("{folder}", "host:9092", "write kafka://host:9092, or ./host:9092 for a folder"),
        ("{folder}", "one.example:9092,two:9093", "write kafka://one.example:9092,two:9093"),
        ("{folder}", "kafka://", "no Kafka broker is named"),
        ("{folder}", "sqlite://folder/log", "write sqlite:///dir, with three slashes"),
        ("{folder}", "mysql://host", "use kafka://host:port, sqlite:///dir"),
        ("{folder}", "sqlite://{file}", "is a file: name the folder"),
    ],
)
def test_a_wrong_url_is_told_what_to_write(tmp_path: Path, warehouse: str, log: str | None, advice: str) -> None:
    file = tmp_path / "file"
    file.touch()
    names = {"file": file, "folder": tmp_path / "lake"}
    with pytest.raises(Invalid) as caught:
        connect(warehouse.format(**names), log=log and log.format(**names))
    assert caught.value.code == "setting-invalid"
    assert advice in caught.value.message
    assert list(tmp_path.iterdir()) == [file]


def test_a_password_in_a_url_is_not_repeated() -> None:
    for warehouse, log in (
        ("kafka://me:secret@host:1", None),
        ("s3://me:secret@bucket", None),
        ("memory://", "kafka://me:secret@host:1"),
    ):
        with pytest.raises(Invalid) as caught:
            connect(warehouse, log=log)
        assert "secret" not in caught.value.message


def test_a_relative_log_is_the_same_one_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    address = connect("lake", log="logs").__reduce__()[1][0]
    assert isinstance(address, EmbeddableLake)
    assert (address.warehouse, address.log) == (str(tmp_path / "lake"), str(tmp_path / "logs"))
