import numpy as np
import numpy.typing as npt
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR

from tests.support.simulator import Federation, SeededRandom
from veilsum.protocol.codec import SecretBytes
from veilsum.protocol.errors import Misuse
from veilsum.protocol.member import Opened, Uploaded
from veilsum.protocol.messages import Upload


def opened(federation: Federation, member: str) -> Opened:
    phase, _ = federation.ask(member, federation.phase.attempt.opening, Opened)
    return phase


@pytest.fixture
def federation() -> Federation:
    federation = Federation(5, question={"ring_bits": 48})
    federation.begin()
    return federation


def keystream(seed: bytes, elements: int) -> npt.NDArray[np.uint64]:
    stream = Cipher(AES256(seed), CTR(bytes(16))).encryptor().update(bytes(8 * elements))
    return np.frombuffer(stream, "<u8")


def sealed(phase: Opened, federation: Federation, seed: int = 1) -> tuple[list[bytes], Upload, bytes]:
    sealing = phase.seal(SeededRandom(seed))
    chunks = [bytes(sealing.chunk(np.arange(64))), bytes(sealing.chunk(np.arange(64, 99)))]
    upload, own = sealing.finish(federation.keys[phase.member])
    return chunks, upload, own


def test_a_stored_upload_has_the_same_chunks_again_in_any_order(federation: Federation) -> None:
    phase = opened(federation, "member-2")
    chunks, upload, own = sealed(phase, federation)
    stored, _ = phase.uploaded(upload, SecretBytes(own))
    assert isinstance(stored, Uploaded)
    again = stored.sealed_again(SecretBytes(SeededRandom(1)(32)))
    assert bytes(again.packed(1, np.arange(64, 99))) == chunks[1]
    assert bytes(again.packed(0, np.arange(64))) == chunks[0]


def test_no_commitment_depends_on_the_vector(federation: Federation) -> None:
    phase = opened(federation, "member-2")
    uploads = []
    for values in (np.zeros(99, np.int64), np.full(99, 2**47 - 1)):
        sealing = phase.seal(SeededRandom(1))
        sealing.chunk(values[:64])
        sealing.chunk(values[64:])
        upload, _ = sealing.finish(federation.keys["member-2"])
        uploads.append(upload)
    one, two = uploads
    assert one.chunk_digests != two.chunk_digests
    assert (one.secret_commitments, one.share_rows, one.boxes) == (
        two.secret_commitments,
        two.share_rows,
        two.boxes,
    )


@pytest.mark.parametrize("elements", [0, 63, 65])
def test_a_chunk_of_another_length_is_a_misuse(federation: Federation, elements: int) -> None:
    sealing = opened(federation, "member-0").seal(SeededRandom(1))
    with pytest.raises(Misuse, match=f"chunk 0 of 2 does not have {elements} elements"):
        sealing.chunk(np.zeros(elements, np.int64))


def test_a_chunk_too_many_is_a_misuse(federation: Federation) -> None:
    sealing = opened(federation, "member-0").seal(SeededRandom(1))
    sealing.chunk(np.zeros(64, np.int64))
    sealing.chunk(np.zeros(35, np.int64))
    with pytest.raises(Misuse, match="chunk 2 of 2"):
        sealing.chunk(np.zeros(35, np.int64))


def test_a_value_outside_the_ring_is_a_misuse_that_does_not_show_it(federation: Federation) -> None:
    sealing = opened(federation, "member-0").seal(SeededRandom(1))
    values = np.zeros(64, np.int64)
    values[3] = 2**47
    with pytest.raises(Misuse, match="element 3 is outside") as caught:
        sealing.chunk(values)
    assert str(2**47) not in str(caught.value)


def test_an_upload_without_all_its_chunks_is_a_misuse(federation: Federation) -> None:
    sealing = opened(federation, "member-0").seal(SeededRandom(1))
    sealing.chunk(np.zeros(64, np.int64))
    with pytest.raises(Misuse, match="1 of 2 chunks are masked"):
        sealing.finish(federation.keys["member-0"])
