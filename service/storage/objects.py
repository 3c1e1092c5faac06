"""Blobs in an S3-compatible bucket, which acknowledges only durable writes.

A request and its transfer have `BUCKET_TIMEOUT_S`. So large blobs are sent in parts and read in ranges, at the reader's pace. Calls block, and
run in threads as those to files do: the library's asynchronous calls abort the process if it ends during one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from service.storage.blobs import READ_PIECE_BYTES, Blobs
from veilsum.protocol.errors import Misuse

BUCKET_TIMEOUT_S = 30
PART_BYTES = 8 << 20
"""Size of a part. Two are sent at a time, which takes 5 Mbit/s."""
MULTIPART_BYTES = 16 << 20
"""Size from which a blob is sent in parts."""


class BucketError(OSError):
    """The bucket failed. The message quotes nothing that was sent or configured."""


class ObjectBlobs(Blobs):
    """Blobs under a prefix of a bucket. Its versioning must be off, or nothing is ever deleted.

    A bucket has an object whole or not at all; parts of an interrupted one go by the bucket's own rules.

    Args:
        url: `s3://bucket` or `s3://bucket/prefix`. Region and credentials come from the environment's `AWS_…`, or the machine's role.
        endpoint: an address other than Amazon's; plain HTTP only where this says so.

    Raises:
        Misuse: another kind of URL.
    """

    def __init__(self, url: str, endpoint: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme != "s3" or not parts.netloc or parts.query:
            raise Misuse("VEILSUM_BLOBS_URL: expected s3://bucket or s3://bucket/prefix")
        self._store = S3Store(
            parts.netloc,
            prefix=parts.path.strip("/") or None,
            config={"endpoint": endpoint} if endpoint else None,
            client_options={
                "allow_http": (endpoint or "").startswith("http://"),
                "connect_timeout": timedelta(seconds=5),
                "timeout": timedelta(seconds=BUCKET_TIMEOUT_S),
            },
            retry_config={"max_retries": 3, "retry_timeout": timedelta(seconds=BUCKET_TIMEOUT_S)},
        )

    def _put(self, name: str, data: bytes) -> None:
        multipart = len(data) > MULTIPART_BYTES
        with _as_a_disk("write"):
            obstore.put(
                self._store, name, data, use_multipart=multipart, chunk_size=PART_BYTES, max_concurrency=2
            )

    def _get(self, name: str) -> bytes:
        return b"".join(self._read(name, PART_BYTES)[1])

    def _read(self, name: str, step: int = READ_PIECE_BYTES) -> tuple[int, Iterator[bytes]]:
        with _as_a_disk("read", missing=name):
            found = obstore.get(self._store, name)
            meta = found.meta
            if meta["size"] <= step:  # this request is enough
                return meta["size"], iter((bytes(found.bytes()),))
        return meta["size"], self._read_ranges(meta, step)

    def _read_ranges(self, meta: "obstore.ObjectMeta", step: int) -> Iterator[bytes]:
        """Yield one version of the object, even if it is replaced meanwhile."""
        for start in range(0, meta["size"], step):
            with _as_a_disk("read"):
                found = obstore.get(
                    self._store,
                    meta["path"],
                    options={"range": (start, start + step), "if_match": meta["e_tag"]},
                )
                piece = bytes(found.bytes())
            yield piece

    def _delete(self, name: str) -> None:
        with _as_a_disk("delete"):
            under = [each["path"] for page in obstore.list(self._store, name) for each in page]
            obstore.delete(self._store, [name, *under])

    def _names(self, folder: str) -> Iterator[str]:
        with _as_a_disk("list"):
            found = obstore.list_with_delimiter(self._store, folder)
        paths = (*found["common_prefixes"], *(each["path"] for each in found["objects"]))
        return (path.rpartition("/")[2] for path in paths)


@contextmanager
def _as_a_disk(what: str, missing: str | None = None) -> Iterator[None]:
    """Raise BucketError for the library's errors, with their kind alone: their words quote the request.

    Args:
        what: a verb.
        missing: the blob that a FileNotFoundError is about; None where it is about the bucket.
    """
    try:
        yield
    except (BaseError, OSError) as error:
        if missing is not None and isinstance(error, FileNotFoundError):
            raise FileNotFoundError(missing) from error
        check = "check VEILSUM_BLOBS_URL, VEILSUM_BLOBS_ENDPOINT and the AWS_… variables"
        raise BucketError(f"the bucket could not {what} ({type(error).__name__}): {check}") from error
