"""The cache of the harness: it answers, and it forgets everything when it is killed."""

from __future__ import annotations

import pytest
import redis

from tests.services.valkey_service import ValkeyService

pytestmark = pytest.mark.services


def test_it_keeps_what_it_is_given_until_it_is_killed(valkey_service: ValkeyService) -> None:
    key = f"{valkey_service.prefix()}a"
    with redis.Redis.from_url(valkey_service.url) as client:
        client.set(key, b"1")
        assert client.get(key) == b"1"
    server = valkey_service.own()
    server.kill()
    server.start_again()

    with redis.Redis.from_url(valkey_service.url) as client:
        assert client.get(key) is None
