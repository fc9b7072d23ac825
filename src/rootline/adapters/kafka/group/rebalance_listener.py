"""Passes on what the library says of a rebalance."""

from __future__ import annotations

from typing import Any, Protocol

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener


class Rebalanced(Protocol):
    """Who is told."""

    async def on_revoked(self, consumer: AIOKafkaConsumer) -> None:
        """Called before the consumer joins again."""
        ...

    def on_assigned(self, consumer: AIOKafkaConsumer, partitions: Any) -> None:
        """Called after the consumer has joined."""
        ...

    def failed(self, error: Exception) -> None:
        """One of the two has raised `error`."""
        ...


class RebalanceListener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Passes on the library's calls; the library would swallow what is raised."""

    def __init__(self, told: Rebalanced, consumer: AIOKafkaConsumer) -> None:
        self._told = told
        self._consumer = consumer

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """The library's word for it."""
        try:
            await self._told.on_revoked(self._consumer)
        except Exception as error:
            self._told.failed(error)

    def on_partitions_assigned(self, assigned: Any) -> None:
        """The library's word for it."""
        try:
            self._told.on_assigned(self._consumer, assigned)
        except Exception as error:
            self._told.failed(error)
