"""The question whether a table is paused, while a broker accepts connections and answers nothing."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from rootline.adapters import log_state
from rootline.adapters.log_state import PauseQuestion
from rootline.schemas.identifiers import TableName


async def test_a_question_that_no_broker_answers_ends_soon_and_is_sent_once_however_often_it_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_state, "_PATIENCE_S", 0.2)
    monkeypatch.setenv("ROOTLINE_KAFKA__REQUEST_TIMEOUT_S", "5")
    connections: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: connections.append(writer), "127.0.0.1", 0)
    log = f"kafka://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with asyncio.timeout(4.5):
        async with contextlib.aclosing(PauseQuestion("memory://", log, TableName("demo.t"))) as question:
            assert [await question.pause() for _ in range(4)] == [None] * 4
    assert len(connections) == 1
    for connection in connections:
        connection.close()
    server.close()
    await server.wait_closed()
