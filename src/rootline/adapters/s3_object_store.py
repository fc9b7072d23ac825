"""Objects in an S3 bucket, created with `If-None-Match: *` and removed in batches.

Owns: the client's configuration, the requests, the meaning of each status and each failure. Does not own: the
consequences of an unknown outcome (the commit machine), the check that a store honours the precondition
(`rootline.storage.warehouse`), the choice of objects to remove (workers).
Invariants: A PUT is sent once: no retry in botocore, none in aiohttp, no `Expect: 100-continue` (which costs a round
trip and hangs on a silent peer). A read is repeated once if its connection was dropped. No checksum is sent that S3
does not require. Only the answer 200 is CREATED. A PUT that may have reached the store, but was not answered, is
NO_ANSWER. Every request has a deadline. Dates are the store's own.
Absolute keys are read, from any bucket that the same settings reach, and never written. Only keys under the warehouse's
prefix are removed. A key that the store did not remove is reported with the store's reason, and removing an absent key
is no error.

Source: the protocol page, section 1, "Client settings that matter".
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import aiohttp
from aiobotocore.config import AioConfig
from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.session import get_session
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
    CredentialRetrievalError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
)
from botocore.handlers import add_expect_header, convert_body_to_file_like_object
from botocore.loaders import Loader, create_loader
from typing_extensions import override

from rootline.adapters.object_key_rules import S3_SCHEMES, AbsoluteKeys, check_key, check_prefix
from rootline.adapters.settings import S3Settings
from rootline.ports.object_remover import DatedObject, ObjectRemover
from rootline.ports.object_store import (
    CopiedBytes,
    Listing,
    LongObject,
    ObjectParts,
    ObjectStore,
    ObjectsUpTo,
    ObjectUploads,
    PendingUpload,
    Predecessor,
    PutReply,
    PutStatus,
    StoredObject,
    UploadedPart,
)
from rootline.schemas.errors import Fenced, Invalid, Unavailable
from rootline.schemas.identifiers import ObjectKey
from rootline.schemas.object_keys import is_absolute


class _OneAttemptSession(AIOHTTPSession):  # type: ignore[misc]
    """An HTTP session without aiohttp's retry of a PUT on a dropped connection.

    The first attempt may have created the object, and the second one would then be answered with 412.
    """

    async def _get_session(self, proxy_url: str | None) -> aiohttp.ClientSession:
        session: aiohttp.ClientSession = await super()._get_session(proxy_url)
        session._retry_connection = False
        return session


@functools.cache
def _loader(data_path: str | None) -> Loader:
    """The loader of the descriptions of S3 and its endpoints, once per process, because they are a megabyte of JSON.

    It lists services by the names of their folders. botocore's own list opens each of the 400 folders.
    """
    loader: Loader = create_loader(data_path)
    loader.list_available_services = lambda type_name: [
        folder.name for place in loader.search_paths if Path(place).is_dir() for folder in Path(place).iterdir()
    ]
    return loader


def s3_client(settings: S3Settings) -> Any:
    """An async context manager that yields the client, for the event loop that enters it.

    Raises:
        Invalid: `setting-invalid`, the secret's file cannot be read.
    """
    config = AioConfig(
        http_session_cls=_OneAttemptSession,
        connect_timeout=settings.connect_timeout_s,
        read_timeout=settings.read_timeout_s,
        max_pool_connections=settings.connections_max,
        retries={"total_max_attempts": 1, "mode": "standard"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        signature_version="s3v4",
        s3={"addressing_style": "path"},
    )
    session = get_session()
    session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
    session.unregister("before-call.s3", add_expect_header)
    session.unregister("before-call.s3.PutObject", add_expect_header)  # the handler's name in older versions
    # bytes stay bytes: aiohttp writes them in one piece, but reads a file object piece by piece in a thread
    session.unregister("before-parameter-build.s3.PutObject", convert_body_to_file_like_object)
    return session.create_client(
        "s3",
        region_name=settings.region,
        endpoint_url=settings.endpoint,
        aws_access_key_id=settings.access_key_id,
        aws_secret_access_key=settings.secret(),
        aws_session_token=settings.session_token.get_secret_value() if settings.session_token else None,
        verify=str(settings.ca_bundle) if settings.ca_bundle else None,
        config=config,
    )


_PAGE_KEYS_MAX: Final = 1_000
_SENT_AT_ONCE_BYTES_MAX: Final = 1 << 20
_NOT_SENT: Final = (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError, ParamValidationError)
_NO_ANSWER: Final = (BotoCoreError, aiohttp.ClientError, OSError, TimeoutError)
_DROPPED: Final = (ConnectionClosedError, EndpointConnectionError)
_NOT_TO_BE_READ: Final = frozenset(
    ("AccessDenied", "AllAccessDisabled", "NoSuchBucket", "InvalidBucketName", "KeyTooLongError", "InvalidObjectState",
     "PermanentRedirect", "AuthorizationHeaderMalformed", "MethodNotAllowed")
)  # fmt: skip
"""For an absolute key, these codes concern the object and not the store, so a retry does not help."""
_WHAT_TO_ALLOW: Final = (
    "files outside the warehouse are read with the warehouse's endpoint, region and keys. Give those keys read access"
)
_TO_READ: Final = "s3:GetObject (for objects that do not exist: s3:ListBucket)"
_RIGHTS: Final = {
    "PUT": "s3:PutObject",
    "POST": "s3:PutObject",
    "GET": _TO_READ,
    "HEAD": _TO_READ,
    "LIST": "s3:ListBucket",
    "DELETE": "s3:DeleteObject",
}
_WHAT_TO_CHECK: Final = {
    "NoSuchBucket": "the bucket does not exist. Create it, or correct the warehouse URL",
    "InvalidAccessKeyId": "the access key is unknown. Check ROOTLINE_S3__ACCESS_KEY_ID",
    "XAdminUserNotFound": "the access key is unknown. Check ROOTLINE_S3__ACCESS_KEY_ID",  # versitygw's word
    "SignatureDoesNotMatch": "the signature is wrong. Check ROOTLINE_S3__SECRET_ACCESS_KEY and ROOTLINE_S3__REGION",
    "RequestTimeTooSkewed": "the clock of this machine is wrong. Set it",
    "PermanentRedirect": "the bucket is in another region. Check ROOTLINE_S3__REGION and ROOTLINE_S3__ENDPOINT",
    "NotImplemented": "the store does not support If-None-Match. Use one that does (docs/stores.md)",
}


class S3ObjectStore(ObjectStore, ObjectParts, ObjectsUpTo, ObjectUploads):
    """The store of one warehouse in `bucket` under `prefix` (empty, or without `/` at its ends). For one event loop.

    `absolute_reads`: objects outside it are read only below these locations. Empty: anywhere.
    """

    def __init__(self, bucket: str, prefix: str, settings: S3Settings, absolute_reads: Sequence[str] = ()) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._settings = settings
        self._name = f"s3://{bucket}/{prefix} at {settings.endpoint or 'Amazon S3'}"
        self._absolute = AbsoluteKeys.limited(self._name, S3_SCHEMES, absolute_reads)
        self._resources = contextlib.AsyncExitStack()
        self._opening = asyncio.Lock()
        self._client: Any = None

    def __repr__(self) -> str:
        return self._name

    @override
    async def get(self, key: ObjectKey) -> StoredObject | None:
        found: StoredObject | None = await self._read(f"GET {key}", key, partial(self._get, key=key))
        return found

    @override
    async def get_up_to(self, key: ObjectKey, bytes_max: int) -> StoredObject | LongObject | None:
        read = partial(self._get, key=key, bytes_max=bytes_max)
        found: StoredObject | LongObject | None = await self._read(f"GET {key}", key, read)
        return found

    @override
    async def length_of(self, key: ObjectKey) -> int | None:
        length: int | None = await self._read(f"HEAD {key}", key, _length)
        return length

    @override
    async def part_of(self, key: ObjectKey, start: int, length: int) -> bytes | None:
        wanted = f"bytes={start}-{start + length - 1}"
        body: bytes | None = await self._read(f"GET {key} {wanted}", key, partial(_part, wanted=wanted))
        return body

    @override
    async def put_if_absent(self, key: ObjectKey, body: bytes, *, after: Predecessor | None = None) -> PutReply:
        """Create `key` with `body` unless it exists. `after` is ignored, because S3 dates its replies."""
        check_key(key)
        client = await self._opened()
        try:
            async with asyncio.timeout(self._settings.request_timeout_s):
                answer = await client.put_object(
                    Bucket=self._bucket, Key=self._prefix + key, Body=_sendable(body), IfNoneMatch="*"
                )
        except ClientError as error:
            status, code = _status_of(error), _code_of(error)
            if status in (409, 412):
                return PutReply(PutStatus.EXISTS, _date_of(error.response), f"{status} {code}")
            if (400 <= status < 500 and status not in (408, 429)) or code == "NotImplemented":
                raise self._refused(f"PUT {key}", error) from error
            return PutReply(PutStatus.NO_ANSWER, _date_of(error.response), f"{status} {code}")
        except _NOT_SENT as error:
            raise Unavailable("store-unavailable", f"{self._name}: PUT {key} was not sent: {_reason(error)}") from error
        except _NO_ANSWER as error:
            return PutReply(PutStatus.NO_ANSWER, None, f"{self._name}: PUT {key}: {_reason(error)}")
        return PutReply(PutStatus.CREATED, _date_of(answer))

    @override
    def url_of(self, key: str) -> str:
        return f"s3://{self._bucket}/{self._prefix}{key}"

    @override
    async def begin_upload(self, key: ObjectKey) -> str:
        check_key(key)
        place = {"Bucket": self._bucket, "Key": self._prefix + key}
        begun = await self._sent(f"POST {key}", lambda client: client.create_multipart_upload(**place))
        return str(begun["UploadId"])

    @override
    async def put_part(self, key: ObjectKey, upload_id: str, number: int, part: bytes | CopiedBytes) -> UploadedPart:
        place: dict[str, Any] = {"Bucket": self._bucket, "Key": self._prefix + key}
        place |= {"UploadId": upload_id, "PartNumber": number}
        what = f"PUT {key} part {number}"
        if isinstance(part, bytes):
            stored = await self._sent(what, lambda client: client.upload_part(**place, Body=_sendable(part)))
        else:
            place["CopySource"] = {"Bucket": self._bucket, "Key": self._prefix + part.source}
            place["CopySourceRange"] = f"bytes={part.start}-{part.start + part.length - 1}"
            stored = (await self._sent(what, lambda client: client.upload_part_copy(**place)))["CopyPartResult"]
        return UploadedPart(str(stored["ETag"]))

    @override
    async def complete_upload(self, upload: PendingUpload) -> None:
        check_key(upload.key)
        client, what = await self._opened(), f"POST {upload.key}"
        parts = [
            {"PartNumber": number, "ETag": part.etag, **{f"Checksum{name}": value for name, value in part.checksums}}
            for number, part in enumerate(upload.parts, 1)
        ]
        asked = {"Bucket": self._bucket, "Key": self._prefix + upload.key, "UploadId": upload.upload_id}
        try:
            async with self._reading(what):
                await client.complete_multipart_upload(**asked, MultipartUpload={"Parts": parts})
        except (ClientError, Unavailable) as error:
            if await self.length_of(upload.key) == upload.length:
                return  # completed by this request, whose answer was lost, or by an earlier one
            raise self._refused(what, error) if isinstance(error, ClientError) else error from error

    @override
    async def list(self, prefix: str, *, limit: int | None = None) -> Listing:
        """The keys under `prefix`, ascending, at most the first `limit` of them.

        `store_ms` is the date of the first page.
        """
        check_prefix(prefix)
        keys: builtins.list[ObjectKey] = []
        date_ms: int | None = None
        request = {"Bucket": self._bucket, "Prefix": self._prefix + prefix}
        async for page in self._pages(
            f"LIST {prefix}", request, lambda: _PAGE_KEYS_MAX if limit is None else limit - len(keys)
        ):
            date_ms = _date_of(page) if date_ms is None else date_ms
            names = (item["Key"][len(self._prefix) :] for item in page.get("Contents", ()))
            keys.extend(ObjectKey(name) for name in names if name and not name.endswith("/"))
            if limit is not None and len(keys) >= limit:
                break
        if date_ms is None:
            raise Fenced(
                "store-lies",
                f"{self._name} sends no Date header, so no head of a table can be confirmed. Use a store that sends it "
                "(docs/stores.md)",
            )
        return Listing(keys, date_ms)

    @override
    async def stored_ms(self, key: ObjectKey) -> int | None:
        check_key(key)
        asked = {"Bucket": self._bucket, "Key": self._prefix + key}
        try:
            async with self._reading(f"HEAD {key}"):
                answer = await _with_retry(lambda client: client.head_object(**asked), await self._opened())
        except ClientError as error:
            if _status_of(error) in (403, 404):
                return None
            raise self._refused(f"HEAD {key}", error) from error
        return int(answer["LastModified"].timestamp() * 1000)

    @override
    async def folders(self, prefix: str) -> Sequence[str]:
        check_prefix(prefix)
        request = {"Bucket": self._bucket, "Prefix": self._prefix + prefix, "Delimiter": "/"}
        found: builtins.list[str] = []
        async for page in self._pages(f"LIST {prefix or '/'}", request, lambda: _PAGE_KEYS_MAX):
            found.extend(item["Prefix"][len(self._prefix) :] for item in page.get("CommonPrefixes", ()))
        return found

    @override
    async def close(self) -> None:
        self._client = None
        await self._resources.aclose()

    async def _opened(self) -> Any:
        if self._client is None:
            async with self._opening:
                if self._client is None:
                    try:
                        self._client = await self._resources.enter_async_context(s3_client(self._settings))
                    except (BotoCoreError, ValueError, OSError) as error:
                        raise Unavailable("store-unavailable", f"{self._name}: {error}") from error
        return self._client

    async def _read(self, what: str, key: ObjectKey, read: Callable[..., Any]) -> Any:
        """The result of `read` for the object's bucket and key, or `None` if the object does not exist."""
        bucket, name = self._bucket, self._prefix + key
        if is_absolute(key):
            bucket, _, name = self._absolute.place_of(key).partition("/")
        else:
            check_key(key)
        try:
            async with self._reading(what):
                return await _with_retry(partial(read, place={"Bucket": bucket, "Key": name}), await self._opened())
        except ClientError as error:
            code = _code_of(error)
            if code in ("NoSuchKey", "404"):  # a HEAD has no body with a code
                return None
            if is_absolute(key) and (code in _NOT_TO_BE_READ or code == "403"):
                reason = f"{self._name}: {what} was answered {_status_of(error)} {code}: {_WHAT_TO_ALLOW}"
                raise Invalid("file-unreadable", reason) from error
            raise self._refused(what, error) from error

    async def _get(
        self, client: Any, key: ObjectKey, place: Mapping[str, str], bytes_max: int | None = None
    ) -> StoredObject | LongObject:
        answer = await client.get_object(**place)
        if bytes_max is not None and answer["ContentLength"] > bytes_max:
            answer["Body"].close()  # and its connection, because the rest of the body is not read
            return LongObject(int(answer["ContentLength"]))
        async with answer["Body"] as stream:
            body: bytes = await stream.read()
        if len(body) != answer["ContentLength"]:
            raise Unavailable(
                "store-unavailable",
                f"{self._name}: GET {key} ended after {len(body)} of {answer['ContentLength']} bytes",
            )
        modified_ms = int(answer["LastModified"].timestamp() * 1000)
        return StoredObject(key, body, modified_ms, _date_of(answer))

    async def _pages(
        self, what: str, request: Mapping[str, str], keys_wanted: Callable[[], int]
    ) -> AsyncIterator[Mapping[str, Any]]:
        token: dict[str, str] = {}
        while True:
            asked = {**request, **token, "MaxKeys": min(keys_wanted(), _PAGE_KEYS_MAX)}
            page = await self._sent(what, partial(_list_page, asked))
            yield page
            if not page.get("IsTruncated"):
                return
            following = page.get("NextContinuationToken")
            if following in (None, token.get("ContinuationToken")):
                raise Unavailable(
                    "store-unavailable",
                    f"{self._name}: {what}: the store reports more pages, but no token for the next one. The call is "
                    "retried. If this persists, use another store (docs/stores.md)",
                )
            token = {"ContinuationToken": following}

    async def _sent(self, what: str, request: Callable[[Any], Any]) -> Any:
        """The answer to a request that may be repeated."""
        try:
            async with self._reading(what):
                return await _with_retry(request, await self._opened())
        except ClientError as error:
            raise self._refused(what, error) from error

    @contextlib.asynccontextmanager
    async def _reading(self, what: str) -> AsyncIterator[None]:
        """Run one read with a deadline. Without an answer, raise `Unavailable`, because a read changes nothing."""
        try:
            async with asyncio.timeout(self._settings.request_timeout_s):
                yield
        except _NO_ANSWER as error:
            raise Unavailable("store-unavailable", f"{self._name}: {what}: {_reason(error)}") from error

    def denied(self, what: str, code: str) -> Unavailable:
        """The error for a request that the access key may not send. `what` begins with the verb of the request."""
        right = _RIGHTS[what.partition(" ")[0]]
        return Unavailable(
            "store-denied",
            f"{self._name}: {what} was answered {code}: the access key does not have the right {right} there. Give it "
            "that right, or use another key (docs/deploy.md, rights on the bucket)",
        )

    def _refused(self, what: str, error: ClientError) -> Unavailable:
        code = _code_of(error)
        if is_denied(code):
            return self.denied(what, code)
        advice = _WHAT_TO_CHECK.get(code, "")
        return Unavailable(
            "store-unavailable",
            f"{self._name}: {what} was answered {_status_of(error)} {code}{': ' if advice else ''}{advice}",
        )


def _sendable(body: bytes) -> bytes | BytesIO:
    """The body as an argument of the client. A large body is sent in pieces, so that the loop can do other work."""
    return body if len(body) <= _SENT_AT_ONCE_BYTES_MAX else BytesIO(body)


async def _length(client: Any, place: Mapping[str, str]) -> int:
    return int((await client.head_object(**place))["ContentLength"])


async def _part(client: Any, place: Mapping[str, str], wanted: str) -> bytes:
    try:
        answer = await client.get_object(**place, Range=wanted)
    except ClientError as error:
        if _status_of(error) == 416:  # the range begins at the object's end
            return b""
        raise
    async with answer["Body"] as stream:
        body: bytes = await stream.read()
        return body


async def _list_page(asked: Mapping[str, Any], client: Any) -> Mapping[str, Any]:
    page: Mapping[str, Any] = await client.list_objects_v2(**asked)
    return page


async def _with_retry(read: Any, client: Any) -> Any:
    """Read, with one retry if the connection was dropped, as idle ones are. A read may be repeated, a PUT may not."""
    try:
        return await read(client)
    except _DROPPED:
        return await read(client)


def _reason(error: BaseException) -> str:
    reason = str(error) or type(error).__name__
    if isinstance(error, NoCredentialsError):
        return f"{reason}. Set ROOTLINE_S3__ACCESS_KEY_ID and ROOTLINE_S3__SECRET_ACCESS_KEY"
    return f"{reason}. Check ROOTLINE_S3__ENDPOINT" if isinstance(error, EndpointConnectionError) else reason


def _status_of(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _code_of(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def is_denied(code: str) -> bool:
    """Whether the store knows the access key, but does not permit the request. A HEAD is answered with a bare 403."""
    return code in ("AccessDenied", "403")


def _date_of(answer: Mapping[str, Any]) -> int | None:
    """The `Date` header of an answer, milliseconds since the epoch."""
    text = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    if text is None:
        return None
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    return int((date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() * 1000)


_BATCH_KEYS_MAX: Final = 1_000


class S3ObjectRemover(S3ObjectStore, ObjectRemover):
    """Removes objects of one warehouse. It has its own client, so only workers need the permission to delete."""

    @override
    async def inventory(self, prefix: str) -> AsyncIterator[Sequence[DatedObject]]:
        check_prefix(prefix)
        request = {"Bucket": self._bucket, "Prefix": self._prefix + prefix}
        async for page in self._pages(f"LIST {prefix}", request, lambda: _BATCH_KEYS_MAX):
            yield [
                DatedObject(
                    ObjectKey(item["Key"][len(self._prefix) :]),
                    item["Size"],
                    int(item["LastModified"].timestamp() * 1000),
                )
                for item in page.get("Contents", ())
                if not item["Key"].endswith("/")
            ]

    @override
    async def remove(self, keys: Sequence[ObjectKey]) -> None:
        for key in keys:
            check_key(key)
        for start in range(0, len(keys), _BATCH_KEYS_MAX):
            await self._remove(keys[start : start + _BATCH_KEYS_MAX])

    async def _remove(self, keys: Sequence[ObjectKey]) -> None:
        what = f"DELETE of {len(keys)} objects, the first of them {keys[0]}"
        named = {"Objects": [{"Key": self._prefix + key} for key in keys], "Quiet": True}
        client = await self._opened()
        try:
            async with self._reading(what):  # it may be repeated, because removing an absent key is no error
                answer = await client.delete_objects(Bucket=self._bucket, Delete=named)
        except ClientError as error:
            raise self._refused_removal(what, str(error.response.get("Error", {}).get("Code", ""))) from error
        failed = [item for item in answer.get("Errors", ()) if item.get("Code") != "NoSuchKey"]
        if failed:
            first = str(failed[0].get("Key", ""))[len(self._prefix) :]
            what = f"DELETE of {len(keys)} objects failed for {len(failed)} of them, the first {first}"
            raise self._refused_removal(what, str(failed[0].get("Code", "")))

    def _refused_removal(self, what: str, code: str) -> Unavailable:
        if is_denied(code):
            return self.denied(what, code)
        return Unavailable("store-unavailable", f"{self!r}: {what} was answered {code}")
