"""Periods: the sums of several finished rounds added up, and solved again (protocol §8).

Each sum is public to the operator already, so adding them up opens nothing. That no two rounds hold the same lineage keeps a
record from counting twice.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load, save

from calibration import lattice_from
from calibration.questions import Question, kind
from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.messages import Certificate
from protocol.published import ALIKE, CombinedRecord, CombineRequest, PartView, ResultRecord
from protocol.record import sign_record
from service.asked import SUMS, WEIGHTS, asked_question, summed_of
from service.problems import not_found
from service.rounds import Round
from service.solving import files_of, solution_view, solve
from service.storage.blobs import Blobs

_FOLDER, _RECORD = "combined", "record"


def combination_id(request: CombineRequest) -> str:
    """The same request has the same id, in whatever order its rounds stand."""
    named = ",".join([*sorted(request.rounds), *(ridge.hex() for ridge in request.ridges)])
    return hashlib.sha256(named.encode()).hexdigest()[:16]


def combine(
    rounds: Sequence[Round], request: CombineRequest, blobs: Blobs, key: SigningKey
) -> CombinedRecord:
    """Add up, check, solve, sign, and keep; where that has been done before, what was kept.

    Raises:
        PeerFault: wrong-phase where a round has no result; terms-refused where two differ in what they sum, or a lineage stands in two of
            them; sum-check-failed.
    """
    name = combination_id(request)
    try:
        return stored_record(name, blobs)
    except PeerFault:
        pass  # nobody has come to the end of it
    rounds = sorted(rounds, key=lambda round_: round_.id)
    records = [round_.documents.result() for round_ in rounds]
    _check_combines(rounds)
    asked = [asked_question(round_.attempt, blobs) for round_ in rounds]
    widest = max(range(len(rounds)), key=lambda index: asked[index].classes)
    _check_alike(rounds, asked, asked[widest])
    _check_apart(rounds)
    terms = rounds[widest].attempt.opening.terms
    vectors = sum(len(record.survivors) - len(record.evicted) for record in records)
    total = _total(rounds, records, asked, asked[widest])
    summed = summed_of(rounds[widest].attempt, vectors, request.ridges)
    answer = solve(asked[widest], [(0, total)], summed)
    weights, _ = files_of(answer, terms, None)
    sums = save({"sum": total})
    record = CombinedRecord(
        combination=name,
        federation=records[0].federation,
        parts=tuple(
            PartView.model_validate({field: getattr(each, field) for field in PartView.model_fields})
            for each in records
        ),
        statistic=terms.statistic,
        extractor=terms.extractor.hex(),
        vectors=vectors,
        records=answer.records,
        weights_sha256=None if weights is None else hashlib.sha256(weights).hexdigest(),
        sums_sha256=hashlib.sha256(sums).hexdigest(),
        weights_error_bound=answer.error_bound,
        solution=solution_view(answer),
    )
    signed = sign_record(record, key)
    for part, data in ((WEIGHTS, weights), (SUMS, sums)):
        if data is not None:
            blobs.put(_part(signed, part), data)
    # The record last: it stands for the whole, and names by its signature the parts that are its own.
    blobs.put(f"{_FOLDER}/{name}/{_RECORD}", signed.model_dump_json().encode())
    return signed


def stored_record(name: str, blobs: Blobs) -> CombinedRecord:
    """What `combine` kept; PeerFault(not-found)."""
    try:
        return CombinedRecord.model_validate_json(blobs.get(f"{_FOLDER}/{name}/{_RECORD}"))
    except FileNotFoundError:
        raise not_found("combination") from None


def kept(federation: str, blobs: Blobs, known: dict[str, CombinedRecord]) -> list[CombinedRecord]:
    """What `combine` kept of a federation's rounds; `known` are those that were read before, which never change."""
    for name in set(blobs.names(_FOLDER)).difference(known):
        with suppress(PeerFault):  # of what nobody came to the end of
            known[name] = stored_record(name, blobs)
    return [record for record in tuple(known.values()) if record.federation == federation]


def stored_weights(name: str, blobs: Blobs) -> tuple[int, Iterator[bytes]]:
    """The weights file's length and its bytes, piece by piece; PeerFault(not-found)."""
    record = stored_record(name, blobs)
    if record.weights_sha256 is None:
        raise not_found("head: the combined rounds counted, and the record says what")
    return blobs.read(_part(record, WEIGHTS))


def _part(record: CombinedRecord, part: str) -> str:
    return f"{_FOLDER}/{record.combination}/{record.signature[:16]}-{part}"


def _check_combines(rounds: Sequence[Round]) -> None:
    for round_ in rounds:
        terms = round_.attempt.opening.terms
        if not kind(terms.statistic).combines or terms.noise:
            raise PeerFault(
                Cause.TERMS_REFUSED,
                f"round {round_.id}: the sums of {'noisy' if terms.noise else terms.statistic} rounds are not added up",
            )


def _check_alike(rounds: Sequence[Round], asked: Sequence[Question], widest: Question) -> None:
    first = rounds[0].attempt.opening.terms
    for round_ in rounds[1:]:
        other = round_.attempt.opening.terms
        for field in ALIKE:
            if getattr(other, field) != getattr(first, field):
                raise PeerFault(
                    Cause.TERMS_REFUSED,
                    f"rounds {rounds[0].id} and {round_.id} differ in {field}: their sums don't add up",
                )
    for round_, each in zip(rounds, asked, strict=True):
        if not widest.widens(each):
            raise PeerFault(
                Cause.TERMS_REFUSED,
                f"round {round_.id} is over other features: its sum doesn't add to the others",
            )


def _check_apart(rounds: Sequence[Round]) -> None:
    columns: Counter[tuple[str, bytes]] = Counter()
    for round_ in rounds:
        assert isinstance(round_.closing, Certificate)
        columns.update({(survivor.member, survivor.lineage) for survivor in round_.closing.survivors})
    if twice := sorted({member for (member, _), times in columns.items() if times > 1}):
        raise PeerFault(
            Cause.TERMS_REFUSED,
            "the same lineages stand in two of these rounds, and their records would count twice: combine rounds over new "
            "lineages only",
            twice,
        )


def _total(
    rounds: Sequence[Round], records: Sequence[ResultRecord], asked: Sequence[Question], widest: Question
) -> npt.NDArray[np.int64]:
    terms = rounds[0].attempt.opening.terms
    lattice = lattice_from(terms.lattice, terms.lattice_bits)
    vectors = sum(len(record.survivors) for record in records)
    if lattice.bound(sum(record.records for record in records), vectors) >= 1 << 63:
        raise PeerFault(Cause.TERMS_REFUSED, "these sums together leave 64 bits: combine fewer rounds")
    total = np.zeros(widest.layout.elements, np.int64)
    for round_, each in zip(rounds, asked, strict=True):
        total += widest.widened(each, load(round_.documents.document(SUMS))["sum"])
    return total
