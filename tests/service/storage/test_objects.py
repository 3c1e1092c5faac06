import os
import time

import pytest

from service.storage import objects
from service.storage.blobs import READ_PIECE_BYTES
from service.storage.objects import MULTIPART_BYTES, ObjectBlobs
from tests.support.servers import BUCKET
from veilsum.protocol.errors import Misuse


def test_a_bucket_keeps_blobs_as_files_do(endpoint: str) -> None:
    blobs, beside = (ObjectBlobs(f"s3://{BUCKET}/{name}/", endpoint) for name in ("one", "two"))
    for name in ("r/1", "r/2", "r/m/3", "rest/1", "s"):
        blobs.put(name, name.encode() * 9)
    assert blobs.list_names("r") == ("1", "2", "m")
    assert blobs.get("r/m/3") == b"r/m/3" * 9
    size, pieces = blobs.read("r/1")
    assert (size, b"".join(pieces)) == (27, b"r/1" * 9)
    blobs.put("r/1", b"")
    assert blobs.get("r/1") == b""
    assert beside.list_names("r") == ()
    blobs.delete("r/1")
    assert blobs.list_names("r") == ("2", "m")
    for _ in range(2):
        blobs.delete("r")
    assert blobs.list_names("r") == ()
    assert blobs.list_names("rest") == ("1",)
    with pytest.raises(FileNotFoundError):
        blobs.get("r/2")
    for use in (blobs.get, blobs.delete, blobs.list_names):
        with pytest.raises(Misuse, match="of a blob"):
            use("../a")


def test_a_bucket_that_fails_is_a_disk_that_fails(endpoint: str) -> None:
    blobs = ObjectBlobs("s3://no-such-bucket", endpoint)
    for use in (lambda: blobs.put("a", b"canary"), lambda: blobs.list_names("a"), lambda: blobs.delete("a")):
        with pytest.raises(OSError, match="the bucket") as caught:
            use()
        assert "canary" not in str(caught.value)
    closed = ObjectBlobs("s3://bucket", "http://127.0.0.1:9")
    with pytest.raises(OSError, match="could not read"):
        closed.get("a")


def test_a_large_blob_is_read_for_longer_than_a_request_may_take(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "BUCKET_TIMEOUT_S", 2)
    blobs, data = (
        ObjectBlobs(f"s3://{BUCKET}/large", endpoint),
        os.urandom(MULTIPART_BYTES + READ_PIECE_BYTES + 7),
    )
    blobs.put("r/1", data)
    size, pieces = blobs.read("r/1")
    first = next(pieces)
    time.sleep(2.5)
    assert (size, b"".join([first, *pieces]) == data) == (len(data), True)
    assert blobs.get("r/1") == data
    _, pieces = blobs.read("r/1")
    next(pieces)
    blobs.put("r/1", bytes(len(data)))
    with pytest.raises(OSError, match="could not read"):
        next(pieces)
    blobs.delete("r/1")


@pytest.mark.parametrize("url", ["", "bucket", "s3://", "https://bucket/x", "s3://bucket/x?y=1"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(Misuse, match="s3://bucket"):
        ObjectBlobs(url)
