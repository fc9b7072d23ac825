"""Kafka's clients, created from the settings in one module, and the errors of both libraries as errors of the log.

Owns: the name of each setting in aiokafka and in librdkafka, ending a producer or a consumer that does not stop, the
text that names the log and the reason. Does not own: settings (`rootline.adapters.settings`), the records that are
sent or read, which failures are raised, retried or passed on.
Invariants: Producers are idempotent and wait for all acknowledgements. Consumers commit nothing automatically and read
only committed records. No client creates a topic. A reason is short, whatever a library reports.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import chain
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import KafkaError
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from rootline.adapters.kafka.record_batches import guard
from rootline.adapters.settings import KafkaSettings
from rootline.schemas.errors import Invalid, Unavailable

_REASON_CHARS_MAX: Final = 200


def log_unavailable(settings: KafkaSettings, failure: BaseException | str, *, topic: str | None = None) -> Unavailable:
    """The error `log-unavailable`, with the log, the topic if there is one, and the reason."""
    reason = failure if isinstance(failure, str) else reason_of(failure, settings)
    place = settings.url if topic is None else f"{settings.url}: topic {topic}"
    return Unavailable("log-unavailable", f"{place}: {reason}")


def reason_of(failure: BaseException, settings: KafkaSettings) -> str:
    """The error of a client library, or a missed deadline, as one line."""
    if isinstance(failure, KafkaException):
        return str(failure.args[0].str())
    if isinstance(failure, TimeoutError):
        return str(failure) or f"no answer within {settings.request_timeout_s:g} s"
    name, text = type(failure).__name__, f"{failure!s:.{_REASON_CHARS_MAX}}"
    return text if text.startswith(name) else f"{name} {text}".strip()


CLIENT_ID: Final = "rootline"
FETCH_WAIT_MS: Final = 100
"""How long a broker waits for records. A partition that was resumed waits until the request in flight ends."""
_METADATA_MAX_AGE_MS: Final = 30_000
_FETCH_BYTES_MAX: Final = 8_388_608
_HEARTBEAT_MS_MAX: Final = 1_000  # members learn of a rebalance from the answer to a heartbeat
_NEVER_MS: Final = 2**31 - 1
_MOMENT_S: Final = 1.0
_ASKERS: Final = ("_heartbeat_task", "_commit_refresh_task", "_reset_committed_task")


def make_producer(
    settings: KafkaSettings, *, record_bytes_max: int, compression: str | None = None
) -> AIOKafkaProducer:
    """Create a producer for records of up to `record_bytes_max` bytes, on the loop that will use it.

    It is not started.
    """
    producer = AIOKafkaProducer(
        **_asyncio_options(settings),
        acks="all",
        enable_idempotence=True,
        linger_ms=settings.linger_ms,
        max_batch_size=min(settings.batch_bytes, record_bytes_max),
        max_request_size=record_bytes_max,
        compression_type=compression,
        request_timeout_ms=round(settings.request_timeout_s * 1_000),
    )
    _end_silent_connections(producer.client)
    return producer


class NewerAssignor(RoundRobinPartitionAssignor):  # type: ignore[misc]
    """The library's own assignor, under a name that the first release does not know.

    So the broker refuses members of that release, because they have no assignor in common with the group.
    """

    name = "rootline-2"


def make_consumer(
    settings: KafkaSettings, *, group_id: str | None, reset: str, reads_all: bool = False
) -> AIOKafkaConsumer:
    """Create a consumer without topics, and do not start it.

    `reset`: what to do if an offset does not exist, `none` or `earliest`. Batches that are too large when decompressed
    are never decompressed (`rootline.adapters.kafka.record_batches`). `reads_all`: also replace batches that the
    library cannot read. Each batch is then read on trial. Otherwise call `suspect` for a partition that cannot be read.
    """
    consumer = AIOKafkaConsumer(
        **_asyncio_options(settings),
        **({} if group_id is None else _group_options(settings)),
        group_id=group_id,
        enable_auto_commit=False,
        auto_offset_reset=reset,
        isolation_level="read_committed",
        request_timeout_ms=round(settings.request_timeout_s * 1_000),
        max_partition_fetch_bytes=_FETCH_BYTES_MAX,
        fetch_max_wait_ms=FETCH_WAIT_MS,
    )
    _end_silent_connections(consumer._client)
    guard(consumer, settings.intents_topic, reads_all=reads_all)
    return consumer


def make_admin(settings: KafkaSettings) -> AdminClient:
    """Create librdkafka's administrative client. Only librdkafka supports topic ids."""
    options: dict[str, Any] = {
        "bootstrap.servers": settings.servers(),
        "client.id": CLIENT_ID,
        "security.protocol": settings.security_protocol,
        "socket.timeout.ms": round(settings.request_timeout_s * 1_000),
        "log_level": 0,  # failures are raised, and the library would also print them to stderr
    }
    if settings.logs_in:
        options |= {
            "sasl.mechanisms": settings.sasl_mechanism,
            "sasl.username": settings.sasl_username,
            "sasl.password": settings.password(),
        }
    for name, value in (
        ("ssl.ca.location", settings.tls_ca_file),
        ("ssl.certificate.location", settings.tls_certificate_file),
        ("ssl.key.location", settings.tls_key_file),
        ("ssl.key.password", settings.key_password()),
    ):
        if value is not None:
            options[name] = str(value)
    return AdminClient(options)


async def stop_producer(producer: AIOKafkaProducer, *, patience_s: float) -> None:
    """Wait up to `patience_s` seconds for pending records, then discard them. Closes every connection."""
    stopping, transports = asyncio.ensure_future(producer.stop()), _transports(producer.client)
    try:
        await asyncio.wait([stopping], timeout=patience_s)
    finally:
        if not stopping.done():
            # an idempotent producer retries for ever, and the library has no public way to stop it: the sender must end
            # first, because a failed batch cannot be queued again
            ending = asyncio.ensure_future(producer._sender.close())
            await asyncio.wait([ending], timeout=patience_s)
            ending.cancel()
            waiting = producer._message_accumulator
            batches = [*chain.from_iterable(waiting._batches.values()), *waiting._pending_batches]
            waiting.fail_all(KafkaError("the producer was closed"))
            for batch in batches:
                batch._drain_waiter.exception()  # retrieved, or asyncio would log it
            await asyncio.wait([stopping], timeout=patience_s)
        if not stopping.done():
            stopping.cancel()
        with contextlib.suppress(asyncio.CancelledError, KafkaError):
            await stopping
        await _abort([*transports, *_transports(producer.client)])


async def start_consumer(consumer: AIOKafkaConsumer, *, patience_s: float) -> None:
    """Connect the consumer. After a failure, nothing is open.

    Raises:
        KafkaError: no broker accepted the connection. TimeoutError: no broker answered within `patience_s` seconds.
    """
    starting = asyncio.ensure_future(consumer.start())
    try:
        async with asyncio.timeout(patience_s):
            await asyncio.shield(starting)
    except BaseException:
        await asyncio.shield(_stop_starting(consumer, starting, patience_s))
        raise


async def stop_consumer(consumer: AIOKafkaConsumer, *, patience_s: float | None = None) -> None:
    """Leave the group and close every connection, even while a broker is down.

    `patience_s`: how long to wait for the broker's answer. `None`: without limit.
    """
    transports = _transports(consumer._client)
    stopping = asyncio.ensure_future(_stopped(consumer))
    try:
        await asyncio.wait([stopping], timeout=patience_s)
    finally:
        if not stopping.done():  # the broker does not answer, and the library waits for it without limit
            stopping.cancel()
            await asyncio.wait([stopping])
            await _abort(transports)
            await _abandon(consumer)
    if not stopping.cancelled():
        stopping.result()


@contextlib.asynccontextmanager
async def reading_consumer(settings: KafkaSettings, *, reset: str = "none") -> AsyncIterator[AIOKafkaConsumer]:
    """A started consumer without a group, for any partitions. It is stopped at the end, also after a cancellation.

    `reset`: as for `make_consumer`.

    Raises:
        KafkaError: it cannot connect. TimeoutError: it could not within the request timeout.
    """
    patience_s = settings.request_timeout_s
    consumer = make_consumer(settings, group_id=None, reset=reset, reads_all=True)
    await start_consumer(consumer, patience_s=patience_s)
    try:
        yield consumer
    finally:
        await asyncio.shield(stop_consumer(consumer, patience_s=patience_s))


def raise_errors_of_group(consumer: AIOKafkaConsumer) -> None:
    """Raise the error that interrupted the membership, if there is one. The library continues only after this call."""
    consumer._coordinator.check_errors()


def is_broken(consumer: AIOKafkaConsumer) -> bool:
    """Whether a part of the consumer has ended, so that it cannot recover any more."""
    client, parts = consumer._client, (consumer._coordinator._coordination_task, consumer._fetcher._fetch_task)
    return any(task.done() for task in parts) or client._sync_task is None or client._sync_task.done()


def on_cluster_change(consumer: AIOKafkaConsumer, changed: Callable[[], None]) -> None:
    """Call `changed` when the consumer has received new metadata of the cluster."""
    consumer._client.cluster.add_listener(lambda _: changed())


def refresh_metadata(consumer: AIOKafkaConsumer) -> None:
    """Request the cluster's metadata soon, instead of at the next regular time."""
    consumer._client.force_metadata_update()


async def _stop_starting(consumer: AIOKafkaConsumer, starting: asyncio.Future[None], patience_s: float) -> None:
    await asyncio.wait([starting], timeout=patience_s)  # if cancelled halfway, the library would not close a connection
    starting.cancel()
    await asyncio.wait([starting])
    if not starting.cancelled():
        starting.exception()  # retrieved, or asyncio would log it
    await stop_consumer(consumer, patience_s=_MOMENT_S)


async def _stopped(consumer: AIOKafkaConsumer) -> None:
    await _stop_joining(consumer)
    try:
        await consumer.stop()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # the library cancels a fetch that waits for a retry, awaits it without a guard, and skips the remaining steps
        await _abandon(consumer)


async def _stop_joining(consumer: AIOKafkaConsumer) -> None:
    """Stop without waiting for the end of a rebalance, or for a callback."""
    coordinator = consumer._coordinator
    joining = getattr(coordinator, "_coordination_task", None)
    if joining is None or joining.done() or not consumer._subscription.reassignment_in_progress:
        return
    while not joining.done():  # it ignores a cancellation while it waits for a task that it has cancelled
        joining.cancel()
        await asyncio.wait([joining], timeout=0.05)
    await _end_tasks(coordinator, _ASKERS)  # after its connection closes, it would consider the broker down
    if coordinator.member_id:
        coordinator.generation = max(coordinator.generation, 1)  # otherwise it would not send LeaveGroup to the broker
    connection = consumer._client._conns.pop((coordinator.coordinator_id, ConnectionGroup.COORDINATION), None)
    if connection is not None:  # the broker reads nothing from this connection until every member has joined
        await connection.close()


async def _abandon(consumer: AIOKafkaConsumer) -> None:
    """Stop the tasks that the library has not stopped."""
    consumer._closed = True
    coordinator, fetcher = consumer._coordinator, consumer._fetcher
    if fetcher is not None:
        await _end([fetcher._fetch_task, *fetcher._pending_tasks])
    if coordinator is not None:
        await _end_tasks(coordinator, ("_coordination_task", *_ASKERS))
    await _abort(_transports(consumer._client))
    await consumer._client.close()


def _end_silent_connections(client: AIOKafkaClient) -> None:
    """Abort connections that time out, because closing an encrypted one would wait for the broker."""
    on_closed = client._on_connection_closed

    def closed(connection: AIOKafkaConnection, reason: CloseReason | None) -> None:
        on_closed(connection, reason)
        transport = connection._protocol._transport
        if reason is CloseReason.CONNECTION_TIMEOUT and transport is not None:
            transport.abort()

    client._on_connection_closed = closed


def _transports(client: AIOKafkaClient) -> list[asyncio.WriteTransport]:
    """The transports of open connections. The library forgets a connection when it begins to close it."""
    return [each._writer.transport for each in client._conns.values() if each._writer is not None]


async def _abort(transports: Sequence[asyncio.WriteTransport]) -> None:
    """Abort connections, because closing an encrypted one would wait for the broker."""
    for transport in transports:
        transport.abort()
    await asyncio.sleep(0)  # the loop closes the sockets


async def _end_tasks(coordinator: object, names: tuple[str, ...]) -> None:
    await _end([task for name in names if (task := getattr(coordinator, name, None)) is not None])


async def _end(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


def _group_options(settings: KafkaSettings) -> dict[str, Any]:
    session_ms = round(settings.session_timeout_s * 1_000)
    return {
        "group_instance_id": settings.group_instance_id,
        "partition_assignment_strategy": (NewerAssignor,),
        "session_timeout_ms": session_ms,
        "heartbeat_interval_ms": max(1, min(_HEARTBEAT_MS_MAX, session_ms // 5)),
        # a live member finishes by its own deadline, and a dead one loses its session
        "rebalance_timeout_ms": session_ms + round(settings.rebalance_deadline_s * 1_000),
        # a coordinator that waits for room must stay a member, so the client must not check its progress
        "max_poll_interval_ms": _NEVER_MS,
    }


def _asyncio_options(settings: KafkaSettings) -> dict[str, Any]:
    options: dict[str, Any] = {
        "bootstrap_servers": settings.servers(),
        "client_id": CLIENT_ID,
        "security_protocol": settings.security_protocol,
        "metadata_max_age_ms": _METADATA_MAX_AGE_MS,
    }
    if settings.encrypts:
        options["ssl_context"] = _ssl_context(settings)
    if settings.logs_in:
        options |= {
            "sasl_mechanism": settings.sasl_mechanism,
            "sasl_plain_username": settings.sasl_username,
            "sasl_plain_password": settings.password(),
        }
    return options


def _ssl_context(settings: KafkaSettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.tls_ca_file)
        if settings.tls_certificate_file is not None:
            context.load_cert_chain(settings.tls_certificate_file, settings.tls_key_file, settings.key_password())
    except (OSError, ssl.SSLError) as error:
        named = ", ".join(str(file) for file in (settings.tls_ca_file, settings.tls_certificate_file) if file)
        raise Invalid(
            "setting-invalid",
            f"the certificates {named} cannot be used: {error}. Check the files of ROOTLINE_KAFKA__TLS_…",
        ) from error
    return context
