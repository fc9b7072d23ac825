"""What the S3 adapter puts on the wire, and what it makes of bad networks: real store, real sockets."""

from __future__ import annotations

import asyncio
import os

import pytest

from rootline.adapters.s3_object_store import S3ObjectStore, s3_client
from rootline.ports.object_store import PendingUpload, PutStatus, UploadedPart
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import ObjectKey
from tests.services.recording_proxy import Fate, recording_proxy
from tests.services.s3_service import S3Service
from tests.services.service_process import HOST, free_port
from tests.services.toxiproxy import Toxiproxy

pytestmark = pytest.mark.services

KEY = ObjectKey("demo/flights/metadata/roots/0")


def store_through(service: S3Service, endpoint: str, like: S3ObjectStore, **changes: float) -> S3ObjectStore:
    """The warehouse of `like`, reached through another endpoint."""
    return service.store(like._prefix.rstrip("/"), endpoint=endpoint, **changes)


@pytest.mark.parametrize("size", [100, 65_536, 3_000_000])
async def test_a_put_is_one_request_without_expect_on_a_slow_network(
    s3_service: S3Service, toxiproxy: Toxiproxy, size: int
) -> None:
    with toxiproxy.proxy(f"slow-{size}", s3_service.address) as slow:
        slow.add("latency", stream="downstream", latency=60)
        # the recorder sends nothing before it has the whole body: a client that waits for 100 Continue stays stuck
        async with recording_proxy(slow.address) as recorder:
            store = s3_service.store(endpoint=recorder.endpoint)
            reply = await store.put_if_absent(KEY, os.urandom(size))
            await store.close()

    assert reply.answer is PutStatus.CREATED
    [request] = recorder.requests
    assert request.method == "PUT"
    assert request.headers["if-none-match"] == "*"
    assert "expect" not in request.headers
    assert "x-amz-sdk-checksum-algorithm" not in request.headers
    assert not any(name.startswith("x-amz-checksum") for name in request.headers)
    assert len(request.body) == size


async def test_requests_share_a_connection(s3_service: S3Service) -> None:
    async with recording_proxy(s3_service.address) as recorder:
        store = s3_service.store(endpoint=recorder.endpoint)
        for number in range(5):
            await store.put_if_absent(ObjectKey(f"a/{number}"), b"x")
        await store.close()

    assert (len(recorder.requests), recorder.connections) == (5, 1)


@pytest.mark.parametrize("warm", [False, True])
async def test_a_put_whose_reply_is_lost_is_not_sent_again_and_may_be_there(s3_service: S3Service, warm: bool) -> None:
    direct = s3_service.store()
    fates = [Fate.RELAYED, Fate.REPLY_LOST] if warm else [Fate.REPLY_LOST]
    async with recording_proxy(s3_service.address, *fates) as recorder:
        store = store_through(s3_service, recorder.endpoint, direct)
        if warm:
            await store.put_if_absent(ObjectKey("warm/up"), b"")
        reply = await store.put_if_absent(KEY, b"body")
        await store.close()

    assert reply.answer is PutStatus.NO_ANSWER
    assert reply.detail
    assert len([request for request in recorder.of_method("PUT") if request.body == b"body"]) == 1
    found = await direct.get(KEY)
    assert found is not None
    assert found.body == b"body"
    await direct.close()


@pytest.mark.parametrize("warm", [False, True])
async def test_a_put_whose_connection_drops_is_not_sent_again(s3_service: S3Service, warm: bool) -> None:
    direct = s3_service.store()
    fates = [Fate.RELAYED, Fate.REQUEST_LOST] if warm else [Fate.REQUEST_LOST]
    async with recording_proxy(s3_service.address, *fates) as recorder:
        store = store_through(s3_service, recorder.endpoint, direct)
        if warm:
            await store.put_if_absent(ObjectKey("warm/up"), b"")
        reply = await store.put_if_absent(KEY, b"body")
        await store.close()

    assert reply.answer is PutStatus.NO_ANSWER
    assert len([request for request in recorder.of_method("PUT") if request.body == b"body"]) == 1
    assert await direct.get(KEY) is None
    await direct.close()


async def test_a_put_that_is_answered_503_is_unknown_and_not_sent_again(s3_service: S3Service) -> None:
    async with recording_proxy(s3_service.address, Fate.ANSWERED_503) as recorder:
        store = s3_service.store(endpoint=recorder.endpoint)
        reply = await store.put_if_absent(KEY, b"body")
        await store.close()

    assert reply.answer is PutStatus.NO_ANSWER
    assert "503" in reply.detail
    assert len(recorder.requests) == 1


async def test_a_silent_store_is_given_up_on_at_the_deadline(s3_service: S3Service) -> None:
    async with recording_proxy(s3_service.address, Fate.SILENT, Fate.SILENT, Fate.SILENT) as recorder:
        store = s3_service.store(endpoint=recorder.endpoint, request_timeout_s=1.5)
        async with asyncio.timeout(20):
            reply = await store.put_if_absent(KEY, b"body")
            with pytest.raises(Unavailable, match="GET"):
                await store.get(KEY)
            with pytest.raises(Unavailable, match="LIST"):
                await store.list("demo/")
        await store.close()

    assert reply.answer is PutStatus.NO_ANSWER
    assert len(recorder.of_method("PUT")) == 1


async def test_a_reply_that_the_network_swallows_is_unknown_and_read_back_elsewhere(
    s3_service: S3Service, toxiproxy: Toxiproxy
) -> None:
    direct = s3_service.store()
    with toxiproxy.proxy("swallow", s3_service.address) as bad:
        store = store_through(s3_service, bad.endpoint, direct, request_timeout_s=2.0)
        await store.put_if_absent(ObjectKey("warm/up"), b"")
        bad.add("timeout", stream="downstream", timeout=300)
        reply = await store.put_if_absent(KEY, b"body")
        await store.close()

    assert reply.answer is PutStatus.NO_ANSWER
    found = await direct.get(KEY)
    assert found is not None
    assert found.body == b"body"
    await direct.close()


async def test_a_connection_that_is_reset_is_unknown(s3_service: S3Service, toxiproxy: Toxiproxy) -> None:
    with toxiproxy.proxy("reset", s3_service.address) as bad:
        bad.add("reset_peer", stream="downstream", timeout=0)
        store = s3_service.store(endpoint=bad.endpoint)
        reply = await store.put_if_absent(KEY, b"body")
        await store.close()

    assert reply.answer is PutStatus.NO_ANSWER


async def test_a_store_that_is_not_there_is_unknown_to_a_put_and_unavailable_to_a_read(s3_service: S3Service) -> None:
    store = s3_service.store(endpoint=f"http://{HOST}:{free_port()}")

    reply = await store.put_if_absent(KEY, b"body")

    assert reply.answer is PutStatus.NO_ANSWER
    with pytest.raises(Unavailable, match="GET demo/flights"):
        await store.get(KEY)
    with pytest.raises(Unavailable, match="LIST demo/"):
        await store.list("demo/")
    await store.close()


async def test_a_read_is_asked_again_once_when_its_connection_was_dropped(s3_service: S3Service) -> None:
    direct = s3_service.store()
    await direct.put_if_absent(KEY, b"body")
    async with recording_proxy(s3_service.address, Fate.REQUEST_LOST, Fate.RELAYED, Fate.REPLY_LOST) as recorder:
        store = store_through(s3_service, recorder.endpoint, direct)
        found = await store.get(KEY)
        listed = await store.list("demo/")
        await store.close()

    assert found is not None
    assert found.body == b"body"
    assert list(listed.keys) == [KEY]
    await direct.close()


async def test_a_body_that_ends_early_is_never_handed_on(s3_service: S3Service) -> None:
    direct = s3_service.store()
    await direct.put_if_absent(KEY, b"a long body" * 1_000)
    async with recording_proxy(s3_service.address, Fate.REPLY_CUT, Fate.REPLY_CUT) as recorder:
        store = store_through(s3_service, recorder.endpoint, direct)
        with pytest.raises(Unavailable, match="GET demo/flights"):
            await store.get(KEY)
        await store.close()
    await direct.close()


async def test_a_bucket_that_does_not_exist_is_named(s3_service: S3Service) -> None:
    store = S3ObjectStore("no-such-bucket-here", "lake", s3_service.settings())

    with pytest.raises(Unavailable, match=r"s3://no-such-bucket-here/lake .*Create it"):
        await store.put_if_absent(KEY, b"body")
    with pytest.raises(Unavailable, match="Create it"):
        await store.get(KEY)
    with pytest.raises(Unavailable, match="Create it"):
        await store.list("")
    await store.close()


@pytest.mark.parametrize(
    ("changes", "advice"),
    [
        ({"secret_access_key": "wrong-secret"}, "ROOTLINE_S3__SECRET_ACCESS_KEY"),
        ({"access_key_id": "nobody"}, "ROOTLINE_S3__ACCESS_KEY_ID"),
    ],
)
async def test_keys_that_are_refused_say_which_setting_to_check(
    s3_service: S3Service, changes: dict[str, str], advice: str
) -> None:
    store = s3_service.store(**changes)

    with pytest.raises(Unavailable, match=advice) as refusal:
        await store.put_if_absent(KEY, b"body")

    assert "wrong-secret" not in refusal.value.message
    await store.close()


async def test_warehouses_in_one_bucket_do_not_see_each_other(s3_service: S3Service) -> None:
    one, two = s3_service.store(), s3_service.store()
    await one.put_if_absent(KEY, b"one")

    assert (await two.put_if_absent(KEY, b"two")).answer is PutStatus.CREATED
    assert list((await two.list("")).keys) == [KEY]
    await one.close()
    await two.close()


async def test_an_upload_that_another_program_began_is_completed_and_may_be_completed_again(
    s3_service: S3Service,
) -> None:
    store, key = s3_service.store(), ObjectKey("demo/flights/data/one.parquet")
    place = {"Bucket": s3_service.bucket, "Key": store.url_of(key).removeprefix(f"s3://{s3_service.bucket}/")}
    async with s3_client(s3_service.settings()) as client:
        upload_id = (await client.create_multipart_upload(**place))["UploadId"]
        bodies = (b"a" * 5 * 1024 * 1024, b"b")
        stored = [
            await client.upload_part(**place, UploadId=upload_id, PartNumber=number, Body=body)
            for number, body in enumerate(bodies, 1)
        ]
    length, parts = sum(map(len, bodies)), tuple(UploadedPart(part["ETag"]) for part in stored)
    assert await store.get(key) is None
    for _ in range(2):
        await store.complete_upload(PendingUpload(key, upload_id, parts, length))
    assert await store.length_of(key) == length
    with pytest.raises(Unavailable, match="POST demo/flights/data/other was answered 404"):
        await store.complete_upload(PendingUpload(ObjectKey("demo/flights/data/other"), upload_id, parts, length))
    await store.close()


async def test_an_upload_that_was_begun_with_checksums_is_completed_with_those_of_its_parts(
    s3_service: S3Service,
) -> None:
    """Amazon S3 refuses to complete it without them, and so does this store."""
    store, key = s3_service.store(), ObjectKey("demo/flights/data/one.parquet")
    place = {"Bucket": s3_service.bucket, "Key": store.url_of(key).removeprefix(f"s3://{s3_service.bucket}/")}
    async with s3_client(s3_service.settings()) as client:
        upload_id = (await client.create_multipart_upload(**place, ChecksumAlgorithm="SHA256"))["UploadId"]
        how = {"UploadId": upload_id, "PartNumber": 1, "Body": b"rows", "ChecksumAlgorithm": "SHA256"}
        stored = await client.upload_part(**place, **how)
    bare = UploadedPart(stored["ETag"])
    with pytest.raises(Unavailable, match="was answered 400 InvalidRequest"):
        await store.complete_upload(PendingUpload(key, upload_id, (bare,), 4))
    whole = UploadedPart(stored["ETag"], (("SHA256", stored["ChecksumSHA256"]),))
    await store.complete_upload(PendingUpload(key, upload_id, (whole,), 4))
    assert await store.length_of(key) == 4
    await store.close()
