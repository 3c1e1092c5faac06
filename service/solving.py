"""M4: from the unmasked sum to a signed result (protocol §4.8)."""

import hashlib
import json
import math
import mmap
import os
import tempfile
from typing import Any

import numpy as np
import numpy.typing as npt

from calibration import CalibrationError
from calibration.errors import SumCheckFailed
from calibration.head_file import Calibrated
from calibration.questions import Answer, Question, Summed
from protocol.causes import Cause
from protocol.coordinator import Recovered
from protocol.disputes import vertex_cover
from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.messages import Evictions, Terms
from protocol.published import DisputeView, DocumentView, RareView, ResultRecord, SolutionView, SurvivorView
from protocol.record import sign_record
from protocol.rest import NoiseView
from service.asked import SUMS, WEIGHTS, asked_question, document, noise_view, summed_of
from service.documents import Outcome
from service.memory import give_back
from service.storage.blobs import Blobs
from service.summing import Pieces

EVICTIONS = "evictions"


def compute(
    round_id: str,
    recovered: Recovered,
    transcript: bytes,
    pieces: Pieces,
    blobs: Blobs,
    key: SigningKey,
    rare: RareView | None = None,
) -> Outcome:
    """Check the sum, which comes in pieces, solve and sign.

    Args:
        round_id: names the round in the record.
        recovered: what the sum is of.
        transcript: its head; nothing is noted any more once the seeds are rebuilt.
        pieces: the sum.
        blobs: the material of its question.
        key: signs the record.
        rare: why classes were withheld.

    Raises:
        PeerFault: sum-check-failed, naming the identity that the sum breaks; nothing is published then.
    """
    give_back()  # what held the uploads
    attempt = recovered.attempt
    terms = attempt.opening.terms
    asked, sums = asked_question(attempt, blobs), SumsFile(terms.elements)
    answer = solve(asked, sums.kept(pieces), summed_of(attempt, len(recovered.summed)))
    noise = noise_view(terms, attempt.manifest)
    weights, published = files_of(answer, terms, noise)
    record = ResultRecord(
        round=round_id,
        federation=attempt.roster.federation.hex(),
        cohort=attempt.manifest.cohort.hex(),
        context=attempt.context.hex(),
        closing=recovered.past.closing.hex(),
        terms=terms.hash.hex(),
        extractor=terms.extractor.hex(),
        statistic=terms.statistic,
        members=len(attempt.members),
        survivors=tuple(
            SurvivorView(member=s.member, digest=s.digest.hex()) for s in recovered.certificate.survivors
        ),
        disputes=tuple(
            DisputeView.model_validate({"cause": dispute.cause.value, "parties": dispute.parties})
            for dispute in recovered.disputes
        ),
        dropped=tuple(sorted(vertex_cover(attempt.context, recovered.disputes, attempt.quorum.colluders))),
        evicted=recovered.evicted,
        withheld=terms.withheld,
        rare=rare,
        records=answer.records,
        noise=noise or "none",
        weights_sha256=None if weights is None else hashlib.sha256(weights).hexdigest(),
        sums_sha256=sums.sha256(),
        documents=views_of(published),
        transcript=transcript.hex(),
        weights_error_bound=answer.error_bound,
        solution=solution_view(answer),
    )
    heads = {} if weights is None else {WEIGHTS: weights}
    named = {f"{_PREFIX}{name}": content for name, content in published.items()}
    documents = {**heads, SUMS: sums.content, **named, EVICTIONS: evictions_of(recovered)}
    return Outcome(sign_record(record, key), documents)


def evictions_of(recovered: Recovered) -> bytes:
    """The proofs against those evicted, as they are published."""
    return Evictions(recovered.attempt.context, recovered.proofs).to_bytes()


_PREFIX = "document-"


def document_name(name: str) -> str:
    """Under what name a round keeps a document that its record names."""
    return f"{_PREFIX}{name}"


def solve(asked: Question, pieces: Pieces, summed: Summed) -> Answer:
    """Check the identities of a sum that comes in pieces, and solve.

    Raises:
        PeerFault: sum-check-failed. Anyone may read it, so it names the identity and no number of the sum.
    """
    try:
        return asked.answer(_pooled(asked, pieces, summed), summed)
    except SumCheckFailed as error:
        raise PeerFault(Cause.SUM_CHECK_FAILED, f"identity broken: {error.identity}") from error
    except (CalibrationError, np.linalg.LinAlgError) as error:
        raise PeerFault(Cause.SUM_CHECK_FAILED, f"no head follows: {type(error).__name__}") from error


def _pooled(asked: Question, pieces: Pieces, summed: Summed) -> Any:
    """The statistics of a sum; whoever solves them needs the sum's own numbers no more."""
    gathering = asked.gathering(summed.lattice)
    for start, piece in pieces:
        gathering.take(start, piece)
    return asked.gathered(gathering, summed)


def files_of(answer: Answer, terms: Terms, noise: NoiseView | None) -> tuple[bytes | None, dict[str, bytes]]:
    """The head's file, which names what its scores mean nothing for, and the other documents by name."""
    published = {name: document(each.arrays, each.notes) for name, each in answer.documents.items()}
    if answer.head is None:
        return None, published
    promised = None if noise is None else noise.model_dump(mode="json")
    calibrated = Calibrated(answer.head, terms.withheld, noise=promised)
    return document(calibrated.arrays, calibrated.notes), published


def views_of(published: dict[str, bytes]) -> tuple[DocumentView, ...]:
    """What the record says of the documents, in order of their names."""
    return tuple(
        DocumentView(name=name, sha256=hashlib.sha256(content).hexdigest())
        for name, content in sorted(published.items())
    )


def solution_view(answer: Answer) -> SolutionView:
    """How the head was found, as records show it."""
    solution = answer.solution
    errors = () if answer.errors is None else answer.errors.tolist()
    more: dict[str, Any] = {}
    if solution is not None:
        condition = solution.condition if math.isfinite(solution.condition) else None
        more = {
            "dof": solution.dof,
            "condition": condition,
            "residual": solution.residual,
            "rank": solution.rank,
        }
    return SolutionView(
        chosen_by=answer.chosen_by,
        ridge=answer.ridge,
        grid=() if answer.grid is None else tuple(answer.grid.tolist()),
        errors=tuple(error if math.isfinite(error) else None for error in errors),
        empty_classes=() if answer.head is None else answer.head.empty_classes,
        **more,
    )


SPOOLED_BYTES = 1 << 24
"""From here on a sum waits on disk while it is solved: its statistics are as large again."""


class SumsFile:
    """The sum as a safetensors file with one tensor, `sum`, in one array: nothing of it is ever copied.

    A large one is mapped from a file without a name, whose pages need not stay in memory.

    Raises:
        OSError: no room on the disk for temporary files.
    """

    def __init__(self, elements: int) -> None:
        tensor = {"dtype": "I64", "shape": [elements], "data_offsets": [0, 8 * elements]}
        header = json.dumps({"sum": tensor}, separators=(",", ":")).encode()
        header += b" " * (-len(header) % 8)
        size = 8 + len(header) + 8 * elements
        self._file: bytearray | mmap.mmap = bytearray(size) if size < SPOOLED_BYTES else _spooled(size)
        self._file[: 8 + len(header)] = len(header).to_bytes(8, "little") + header
        self.total = np.frombuffer(self._file, "<i8", offset=8 + len(header))
        self._taken = 0

    def take(self, start: int, piece: npt.NDArray[np.int64]) -> None:
        """Elements of the sum from `start` on."""
        self.total[start : start + len(piece)] = piece
        self._taken += piece.nbytes
        if self._taken >= SPOOLED_BYTES:
            self.rest()

    def kept(self, pieces: Pieces) -> Pieces:
        """The pieces, each taken as it passes."""
        for start, piece in pieces:
            self.take(start, piece)
            yield start, piece
        self.rest()

    def rest(self) -> None:
        """Leave it to the disk until it is read again."""
        self._taken = 0
        if isinstance(self._file, mmap.mmap):
            self._file.madvise(mmap.MADV_DONTNEED)  # of a shared mapping: what was written stays

    def sha256(self) -> str:
        """Of the file, in hexadecimal, a part of it in memory at a time."""
        digest, whole = hashlib.sha256(), memoryview(self._file)
        for start in range(0, len(whole), SPOOLED_BYTES):
            digest.update(whole[start : start + SPOOLED_BYTES])
            self.rest()
        return digest.hexdigest()

    @property
    def content(self) -> bytes:
        """The file."""
        return self._file  # type: ignore[return-value]  # written and hashed as bytes are, and never copied


def _spooled(size: int) -> mmap.mmap:
    with tempfile.TemporaryFile(prefix="veilsum-sum-") as file:
        # A full disk is an error here, and not a signal at some later write.
        os.posix_fallocate(file.fileno(), 0, size)
        return mmap.mmap(file.fileno(), size)
