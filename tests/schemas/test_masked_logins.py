"""No login of a URL is in a message, however the URL is written; the rest of the message stays."""

from __future__ import annotations

import pytest

from rootline.schemas.errors import Invalid, masked_login


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("redis://me:secret@host:6379/0 is away", "redis://********@host:6379/0 is away"),
        ("redis://me:sec@ret@host is away", "redis://********@host is away"),
        ("redis://me:sec/ret@host is away", "redis://********@host is away"),
        ("redis://me:sec ret@host is away", "redis://********@host is away"),
        ("redis://:sec/ret@host is away", "redis://********@host is away"),
        ("warehouse 's4://me:12/ret@b/lake': no scheme", "warehouse 's4://********@b/lake': no scheme"),
        ("warehouse 's4://m e:12 ret@b/lake': no scheme", "warehouse 's4://********@b/lake': no scheme"),
        ('warehouse "s4://me:it\'s@b/lake": no scheme', 'warehouse "s4://********@b/lake": no scheme'),
        ("redis://host/0?db=1&password=sec@ret&x=1 is away", "redis://host/0?db=1&password=********&x=1 is away"),
        ("'https://b/k?X-Amz-Signature=12ab' failed", "'https://b/k?X-Amz-Signature=********' failed"),
        ("LIST https://b?continuation-token=1&max-keys=2", "LIST https://b?continuation-token=1&max-keys=2"),
        ("token@host and kafka://token@host", "token@host and kafka://********@host"),
        ("s3://bucket/a@b/c is absent", "s3://bucket/a@b/c is absent"),
        ("'s3://bucket/a@b/c' and 's3://bucket/d' are absent", "'s3://bucket/a@b/c' and 's3://bucket/d' are absent"),
        ("http://host:9000/a is away, ask ops@example", "http://host:9000/a is away, ask ops@example"),
        ("kafka://host:9092 is away, ask ops@example", "kafka://host:9092 is away, ask ops@example"),
    ],
)
def test_the_login_of_a_url_in_a_message_is_masked_and_nothing_else(said: str, shown: str) -> None:
    assert Invalid("setting-invalid", said).message == shown


@pytest.mark.parametrize("login", ["me:12/34", "me:12 34", "m/e:12@34", "me:12\n34", ":1"])
def test_all_of_a_login_is_masked_where_a_text_is_one_url(login: str) -> None:
    assert masked_login(f"redis://{login}@host:1/0") == "redis://********@host:1/0"
    assert masked_login("redis://host:6379/0?password=sec@ret") == "redis://host:6379/0?password=********"
    assert masked_login("s3://bucket/a@b") == "s3://bucket/a@b"
    assert masked_login("a plain text") == "a plain text"


@pytest.mark.parametrize("piece", ["a://b:", "'x://:", "://", "?password", "x://a@", "'\"://"])
def test_a_text_that_an_intent_chose_is_masked_in_a_time_that_grows_with_its_length(piece: str) -> None:
    masked = Invalid("setting-invalid", "@" + piece * 100_000).message
    assert masked
