"""Kafka's clients, made from our settings in one place.

Owns: what each setting is called by aiokafka and by librdkafka; giving a producer up. Does not own: settings
(`kafka_settings`), what is sent or read.
Invariants: producers are idempotent with all acknowledgements; consumers commit nothing by themselves and read only
committed records; no client makes a topic.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from itertools import chain
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError
from confluent_kafka.admin import AdminClient

from rootline.adapters.kafka_settings import KafkaSettings
from rootline.schemas.errors import Invalid

CLIENT_ID: Final = "rootline"
_METADATA_MAX_AGE_MS: Final = 30_000
_FETCH_BYTES_MAX: Final = 8_388_608
_FETCH_WAIT_MS: Final = 100  # a partition that is resumed or sought waits for the request that is under way


def make_producer(settings: KafkaSettings, *, record_bytes_max: int) -> AIOKafkaProducer:
    """A producer for records of up to `record_bytes_max` bytes, not started; on the loop that will use it."""
    return AIOKafkaProducer(
        **_asyncio_options(settings),
        acks="all",
        enable_idempotence=True,
        linger_ms=settings.linger_ms,
        max_batch_size=min(settings.batch_bytes, record_bytes_max),
        max_request_size=record_bytes_max,
        request_timeout_ms=round(settings.request_timeout_s * 1_000),
    )


def make_consumer(settings: KafkaSettings, *, group_id: str | None, reset: str) -> AIOKafkaConsumer:
    """A consumer without topics, not started. `reset`: `none` or `earliest`, for an offset that is not there."""
    return AIOKafkaConsumer(
        **_asyncio_options(settings),
        group_id=group_id,
        enable_auto_commit=False,
        auto_offset_reset=reset,
        isolation_level="read_committed",
        request_timeout_ms=round(settings.request_timeout_s * 1_000),
        max_partition_fetch_bytes=_FETCH_BYTES_MAX,
        fetch_max_wait_ms=_FETCH_WAIT_MS,
    )


def make_admin(settings: KafkaSettings) -> AdminClient:
    """The administrative client of librdkafka, which alone knows topic ids."""
    options: dict[str, Any] = {
        "bootstrap.servers": settings.servers(),
        "client.id": CLIENT_ID,
        "security.protocol": settings.security_protocol,
        "socket.timeout.ms": round(settings.request_timeout_s * 1_000),
        "log_level": 0,  # what fails is raised; the library would print it to stderr as well
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
    """Let pending records arrive for `patience_s` seconds, then give them up; every connection is closed."""
    stopping = asyncio.ensure_future(producer.stop())
    try:
        await asyncio.wait([stopping], timeout=patience_s)
    finally:
        if not stopping.done():
            # an idempotent producer tries for ever, and the library has no public way to give up: first what sends
            # must end, because a batch that failed cannot be queued again
            ending = asyncio.ensure_future(producer._sender.close())
            await asyncio.wait([ending], timeout=patience_s)
            ending.cancel()
            waiting = producer._message_accumulator
            batches = [*chain.from_iterable(waiting._batches.values()), *waiting._pending_batches]
            waiting.fail_all(KafkaError("the producer was closed"))
            for batch in batches:
                batch._drain_waiter.exception()  # nobody else looks, and asyncio would complain
            await asyncio.wait([stopping], timeout=patience_s)
        if not stopping.done():
            stopping.cancel()
        with contextlib.suppress(asyncio.CancelledError, KafkaError):
            await stopping


async def stop_consumer(consumer: AIOKafkaConsumer) -> None:
    """Every connection is closed, also while a broker is away."""
    try:
        await consumer.stop()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # the library cancels a fetch that waits for its next attempt, awaits it without a guard, and leaves the rest
        pending = list(consumer._fetcher._pending_tasks)
        for fetch in pending:
            fetch.cancel()
        if pending:
            await asyncio.wait(pending)
        await consumer._client.close()


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
        raise Invalid("setting-invalid", f"the certificates {named} cannot be used: {error}") from error
    return context
