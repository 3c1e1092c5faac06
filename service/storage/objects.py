"""Large bytes in an S3-compatible bucket, which acknowledges what is durable.

A request, with all it sends or takes, has `PATIENCE_S`: so what is large goes in parts and comes in ranges, and a reader may take
its time. Calls block, and run in threads as those to files do: the library's own asynchronous ones abort the process when it ends in one.
"""

from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from protocol.errors import Misuse
from service.storage.blobs import PIECE_BYTES, checked

PATIENCE_S = 30
PART_BYTES = 8 << 20
"""Of one part of what is stored: two of them at a time, at 5 Mbit/s at the least."""
MULTIPART_BYTES = 16 << 20
"""From which on there are parts."""
FAILED = (BaseError, OSError)
"""What the library raises: where the bucket itself is missing, a FileNotFoundError."""


class ObjectBlobs:
    """Blobs under a prefix of a bucket. Its versions must be off, or nothing is ever deleted.

    Args:
        url: `s3://bucket` or `s3://bucket/prefix`. Region and credentials come from the environment's `AWS_…`, or the machine's role.
        endpoint: where it is not Amazon's; plain HTTP only where this says so.

    Raises:
        Misuse: another kind of URL.
    """

    def __init__(self, url: str, endpoint: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme != "s3" or not parts.netloc or parts.query:
            raise Misuse("VEILSUM_BLOBS_URL is to be s3://bucket or s3://bucket/prefix")
        prefix = parts.path.strip("/")
        self._store = S3Store(
            parts.netloc,
            prefix=prefix or None,
            config={"endpoint": endpoint} if endpoint else None,
            client_options={
                "allow_http": (endpoint or "").startswith("http://"),
                "connect_timeout": timedelta(seconds=5),
                "timeout": timedelta(seconds=PATIENCE_S),
            },
            retry_config={"max_retries": 3, "retry_timeout": timedelta(seconds=PATIENCE_S)},
        )

    def put(self, name: str, data: bytes) -> None:
        """Store a blob whole or not at all, and durably."""
        try:
            obstore.put(
                self._store,
                checked(name),
                data,
                use_multipart=len(data) > MULTIPART_BYTES,
                chunk_size=PART_BYTES,
                max_concurrency=2,
            )
        except FAILED as error:
            raise _failed("write", error) from error

    def get(self, name: str) -> bytes:
        """The blob's bytes; FileNotFoundError if it was never stored."""
        return b"".join(self._read(name, PART_BYTES)[1])

    def read(self, name: str) -> tuple[int, Iterator[bytes]]:
        """The blob's length and its bytes, piece by piece; FileNotFoundError if it was never stored."""
        return self._read(name, PIECE_BYTES)

    def _read(self, name: str, step: int) -> tuple[int, Iterator[bytes]]:
        """What fits into one piece is asked for once."""
        try:
            found = obstore.get(self._store, checked(name))
            meta = found.meta
            if meta["size"] <= step:
                return meta["size"], iter((bytes(found.bytes()),))
        except FileNotFoundError as error:
            raise FileNotFoundError(name) from error
        except FAILED as error:
            raise _failed("read", error) from error
        return meta["size"], self._ranges(meta, step)

    def _ranges(self, meta: "obstore.ObjectMeta", step: int) -> Iterator[bytes]:
        """Of one and the same object, whoever puts another in its place meanwhile."""
        for start in range(0, meta["size"], step):
            try:
                found = obstore.get(
                    self._store,
                    meta["path"],
                    options={"range": (start, start + step), "if_match": meta["e_tag"]},
                )
                piece = bytes(found.bytes())
            except FAILED as error:
                raise _failed("read", error) from error
            yield piece

    def delete(self, name: str) -> None:
        """Remove a blob, or every blob under a folder; nothing happens if there is none."""
        try:
            under = [each["path"] for page in obstore.list(self._store, checked(name)) for each in page]
            obstore.delete(self._store, [name, *under])
        except FAILED as error:
            raise _failed("delete", error) from error

    def names(self, folder: str) -> tuple[str, ...]:
        """What lies directly under a folder."""
        try:
            found = obstore.list_with_delimiter(self._store, checked(folder))
        except FAILED as error:
            raise _failed("list", error) from error
        paths = (*found["common_prefixes"], *(each["path"] for each in found["objects"]))
        return tuple(sorted(path.rpartition("/")[2] for path in paths))

    def clear_up(self) -> None:
        """Nothing: a bucket has an object whole, or not at all. It forgets the parts of one that was interrupted by its own rules."""

    def free_bytes(self) -> None:
        """A bucket does not say."""


def _failed(what: str, error: Exception) -> OSError:
    """As a disk's failure. The library's words quote the request, so its log gets only their kind."""
    return OSError(f"the bucket could not {what}: {type(error).__name__}")
