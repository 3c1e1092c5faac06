"""M4: solve the unmasked sum for a signed result, or publish a count's sums (analysis: Results, member: Enough rows)."""

import ctypes
import gc
import hashlib
import json
import mmap
import os
import tempfile

import numpy as np

from service.coordination.documents import (
    DISCLOSURE_DOCUMENT,
    EVICTIONS_DOCUMENT,
    HEAD_DOCUMENT,
    MATERIAL_DOCUMENT,
    SUMS_DOCUMENT,
    Publication,
    document_name,
)
from service.coordination.summing import Pieces, read_chunk
from service.storage.blobs import Blobs
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Recovered, disclose_vectors
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import Evictions
from veilsum.protocol.record import sign_record
from veilsum.study.answers import compute_answer, read_pooled
from veilsum.study.judgement import judge_answer
from veilsum.study.result_files import encode_files, read_material
from veilsum.study.views import record_of


def give_back() -> None:
    """Collect garbage and return freed memory to the system (glibc only): a hundred megabytes after a round's uploads."""
    gc.collect()  # 20 MB of a hundred members' announcements
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def solve_sum(
    recovered: Recovered,
    transcript: bytes,
    pieces: Pieces,
    key: SigningKey,
    *,
    material: bytes | None = None,
    holders: tuple[int, ...] = (),
    reached: tuple[int, ...] = (),
) -> Publication:
    """Check the sum, which comes in pieces, solve and sign.

    `transcript` is the transcript's head, which is final once the seeds are rebuilt. `material` is the step's input from the step before
    it, and `holders` and `reached` are the sums of the counts that the terms name.

    Raises:
        PeerFault: sum-check-failed, naming the identity that the sum violates. Nothing is published then.
    """
    give_back()  # what held the uploads
    attempt, vectors = recovered.attempt, len(recovered.summed_members)
    spec = attempt.spec
    sums = SumsFile(spec.elements, pieces)
    if spec.judges:
        found = judge_answer(spec.question, sums.total)
    else:
        arrays = read_material(spec, material)
        statistics = read_pooled(spec, sums.total, vectors)
        sums.drop_pages()  # as large as half of what solving takes
        found = compute_answer(spec, statistics, vectors, arrays)
    made = encode_files(spec, found)
    record = record_of(recovered, found, made, sums.hash_content(), transcript, holders, reached)
    kept = {HEAD_DOCUMENT: made.head, MATERIAL_DOCUMENT: made.material}
    named = {document_name(name): content for name, content in made.documents.items()}
    documents = {name: content for name, content in kept.items() if content is not None}
    documents |= {SUMS_DOCUMENT: sums.content, EVICTIONS_DOCUMENT: _encode_evictions(recovered), **named}
    return Publication(sign_record(record, key), documents)


def publish_counts(round_id: str, recovered: Recovered, pieces: Pieces, blobs: Blobs) -> Publication:
    """Publish the sums of a count, and the disclosure from which members recount them.

    Raises:
        DamagedChunkError: a member's chunk is damaged.
        PeerFault: sum-check-failed if a sum counts fewer than 0 members or more than all: members would refuse it.
    """
    counts = np.concatenate([piece for _, piece in pieces])
    if (counts < 0).any() or (counts > len(recovered.summed_members)).any():
        raise PeerFault(
            Cause.SUM_CHECK_FAILED,
            "a sum counts a negative number of members, or more than all: a member did not send ones and zeros",
        )

    def read_stored(member: str, index: int) -> bytes:
        return read_chunk(blobs, round_id, member, index, recovered.uploads[member].chunk_digest(index))

    shown = disclose_vectors(recovered, read_stored)
    documents = {EVICTIONS_DOCUMENT: _encode_evictions(recovered), DISCLOSURE_DOCUMENT: shown.to_bytes()}
    return Publication(None, documents, tuple(counts.tolist()))


def _encode_evictions(recovered: Recovered) -> bytes:
    """Return the published proofs against evicted members."""
    return Evictions(recovered.attempt.context, recovered.proofs).to_bytes()


SUM_ON_DISK_BYTES = 1 << 24
"""Bytes from which a sum is kept on disk while it is solved: its statistics are as large again."""


class SumsFile:
    """The sum as a safetensors file with one tensor, `sum`, in one array: nothing of it is ever copied.

    A large one is mapped from an unnamed file: its pages need not stay in memory.
    """

    def __init__(self, elements: int, pieces: Pieces) -> None:
        tensor = {"dtype": "I64", "shape": [elements], "data_offsets": [0, 8 * elements]}
        header = json.dumps({"sum": tensor}, separators=(",", ":")).encode()
        header += b" " * (-len(header) % 8)
        size = 8 + len(header) + 8 * elements
        self._file: bytearray | mmap.mmap = bytearray(size) if size < SUM_ON_DISK_BYTES else _map_file(size)
        self._file[: 8 + len(header)] = len(header).to_bytes(8, "little") + header
        self.total = np.frombuffer(self._file, "<i8", offset=8 + len(header))
        taken = 0
        for start, piece in pieces:
            self.total[start : start + len(piece)] = piece
            taken += piece.nbytes
            if taken >= SUM_ON_DISK_BYTES:
                self.drop_pages()
                taken = 0
        self.drop_pages()

    def drop_pages(self) -> None:
        """Let the system drop its pages from memory until they are read again."""
        if isinstance(self._file, mmap.mmap):
            self._file.madvise(mmap.MADV_DONTNEED)  # of a shared mapping: what was written stays

    def hash_content(self) -> str:
        """SHA-256 of the file, in hexadecimal, computed piece by piece."""
        digest, whole = hashlib.sha256(), memoryview(self._file)
        for start in range(0, len(whole), SUM_ON_DISK_BYTES):
            digest.update(whole[start : start + SUM_ON_DISK_BYTES])
            self.drop_pages()
        return digest.hexdigest()

    @property
    def content(self) -> bytes:
        return self._file  # type: ignore[return-value]  # written and hashed as bytes are, and never copied


def _map_file(size: int) -> mmap.mmap:
    with tempfile.TemporaryFile(prefix="veilsum-sum-") as file:
        # A full disk is an error here, and not a signal at some later write.
        os.posix_fallocate(file.fileno(), 0, size)
        return mmap.mmap(file.fileno(), size)
