"""Periods: the exact sums of several finished rounds of one question added up, and solved again (analysis: Results).

Certified sets of records are disjoint over the periods of a question, so no record counts twice. Each sum is known to the coordinator
already: adding them up opens nothing.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

import numpy as np
from safetensors.numpy import load, save
from sqlalchemy import select

from service.coordination.catalogue import Catalogue
from service.coordination.documents import HEAD_DOCUMENT, SUMS_DOCUMENT
from service.coordination.rounds import Round
from service.http.problems import not_found, storage_damaged, terms_refused
from service.storage.blobs import Blobs, DamagedBlobError, in_blob_thread
from service.storage.database import Database
from service.storage.tables import rounds
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.record import (
    CombinedRecord,
    CombineRequest,
    PartView,
    ResultRecord,
    sign_record,
    verify_record,
)
from veilsum.protocol.rest import join_names
from veilsum.study.answers import compute_answer, read_pooled
from veilsum.study.result_files import digest_of, encode_files
from veilsum.study.views import solution_view

COMBINED_FOLDER, _RECORD_PART = "combined", "record"
"""The folder of all combinations, and the name of each one's record."""


class Combinations:
    """The combinations of each federation's finished rounds."""

    def __init__(self, database: Database, catalogue: Catalogue, blobs: Blobs, key: SigningKey) -> None:
        self._database, self._catalogue, self._blobs, self._key = database, catalogue, blobs, key
        self._records = dict[str, CombinedRecord]()
        """Those that were read before, which never change."""

    async def combine(self, federation: str, request: CombineRequest) -> CombinedRecord:
        """Add up the sums of a federation's finished rounds. Raises PeerFault(not-found), or as `combine_rounds`."""
        found = [await self._catalogue.find_round(name) for name in dict.fromkeys(request.rounds)]
        if any(round_.federation != federation for round_ in found):
            raise not_found("round in this federation")
        numbers = await self._opening_numbers([round_.id for round_ in found])
        found.sort(key=lambda round_: numbers[round_.id])
        return await in_blob_thread(combine_rounds, found, request, self._blobs, self._key)

    async def list_records(self, federation: str) -> list[CombinedRecord]:
        """Return a federation's combinations, those with the newest rounds first."""
        found = await in_blob_thread(
            stored_combinations, federation, self._blobs, self._key.public, self._records
        )
        numbers = await self._opening_numbers({part.round for record in found for part in record.parts})

        def newest_round(record: CombinedRecord) -> tuple[int, str]:
            # A round whose row was lost counts as the oldest.
            return max(numbers.get(part.round, 0) for part in record.parts), record.combination

        return sorted(found, key=newest_round, reverse=True)

    async def _opening_numbers(self, names: Collection[str]) -> dict[str, int]:
        """Return rounds' places in storage, in the order of opening."""
        query = select(rounds.c.id, rounds.c.number).where(rounds.c.id.in_(names))
        return {row.id: row.number for row in await self._database.read_rows(query)}


def combine_rounds(
    finished: Sequence[Round], request: CombineRequest, blobs: Blobs, key: SigningKey
) -> CombinedRecord:
    """Add up, check, solve, sign and store; a repeated call returns what was stored.

    `finished` are those that the request names, oldest first.

    Raises:
        PeerFault: wrong-phase if a round has no result; terms-refused if two sum different things, or the same period;
            sum-check-failed; storage-damaged if a round's sums are not those that were signed.
    """
    # The same rounds have the same name, in whatever order they stand.
    name = hashlib.sha256(",".join(sorted(set(request.rounds))).encode()).hexdigest()[:16]
    with suppress(PeerFault):  # an earlier combination that was never finished, or was damaged
        return stored_record(name, blobs, key.public)
    records = [round_.documents.require_record() for round_ in finished]
    _check_alike(finished, records)
    spec = finished[-1].attempt.spec
    total = np.zeros(spec.elements, np.int64)  # 256 sums of 48 bits fit
    for round_ in finished:
        total += load(round_.documents.fetch_document(SUMS_DOCUMENT))["sum"]
    vectors = sum(len(record.survivors) - len(record.evicted) for record in records)
    found = compute_answer(spec, read_pooled(spec, total, vectors), vectors)
    head, sums = encode_files(spec, found).head, save({"sum": total})
    newest = records[-1]
    record = CombinedRecord(
        combination=name,
        federation=newest.federation,
        study=newest.study,
        name=newest.name,
        version=newest.version,
        question=spec.question.digest.hex(),
        parts=tuple(PartView.model_validate(each, from_attributes=True) for each in records),
        withheld=spec.withheld,
        vectors=vectors,
        rows=found.records,
        head=digest_of(head),
        sums=hashlib.sha256(sums).hexdigest(),
        error_bound=found.error_bound,
        solution=solution_view(found),
    )
    signed = sign_record(record, key)
    for part, data in ((HEAD_DOCUMENT, head), (SUMS_DOCUMENT, sums)):
        if data is not None:
            blobs.put(_part_name(signed, part), data)
    # The record last: it stands for the whole, and names by its signature the parts that are its own.
    blobs.put(record_blob(name), signed.model_dump_json().encode())
    return signed


def record_blob(name: str) -> str:
    """Return the name under which a combination's record is stored."""
    return f"{COMBINED_FOLDER}/{name}/{_RECORD_PART}"


def _read_record(content: bytes, coordinator: bytes) -> CombinedRecord:
    record = CombinedRecord.model_validate_json(content)
    verify_record(record, coordinator)
    return record


def is_record(coordinator: bytes, content: bytes) -> bool:
    """Whether a blob holds a record that the coordinator's key signed."""
    try:
        _read_record(content, coordinator)
    except (ValueError, PeerFault):
        return False
    return True


def stored_record(name: str, blobs: Blobs, coordinator: bytes) -> CombinedRecord:
    """Return the record that `combine_rounds` stored and the coordinator's key signed. Raises PeerFault: not-found, storage-damaged."""
    blob = record_blob(name)
    try:
        record = _read_record(blobs.get(blob), coordinator)
    except FileNotFoundError:
        raise not_found("combination") from None
    except (ValueError, PeerFault) as error:
        blobs.note_damage(blob)
        raise storage_damaged(
            f"the coordinator's storage changed the record of combination {name}; no member is at fault. Combine its rounds again"
        ) from error
    blobs.damaged.pop(blob, None)
    return record


def stored_combinations(
    federation: str, blobs: Blobs, coordinator: bytes, known: dict[str, CombinedRecord]
) -> list[CombinedRecord]:
    """Return all combinations of a federation's rounds; `known` are those that were read before, which never change."""
    for name in set(blobs.list_names(COMBINED_FOLDER)).difference(known):
        with suppress(PeerFault):  # of a combination that was never finished, or a damaged one
            known[name] = stored_record(name, blobs, coordinator)
    return [record for record in tuple(known.values()) if record.federation == federation]


def stored_weights(name: str, blobs: Blobs, coordinator: bytes) -> tuple[int, Iterator[bytes]]:
    """Return the weights file's length, and its bytes piece by piece. Raises as `stored_record`."""
    record = stored_record(name, blobs, coordinator)
    if record.head is None:
        raise not_found("head of this combination")
    try:
        return blobs.read_checked(_part_name(record, HEAD_DOCUMENT), record.head)
    except (FileNotFoundError, DamagedBlobError):
        raise storage_damaged(
            f"the coordinator's storage has lost or changed the head of combination {name}; no member is at fault"
        ) from None


def _part_name(record: CombinedRecord, part: str) -> str:
    return f"{COMBINED_FOLDER}/{record.combination}/{record.signature[:16]}-{part}"


def _check_alike(finished: Sequence[Round], records: Sequence[ResultRecord]) -> None:
    """Refuse sums that do not add up (terms-refused)."""
    if len(finished) < 2:
        raise terms_refused("a combination takes at least two different rounds")
    first = finished[-1]
    periods = Counter(record.period for record in records)
    if twice := [period for period, times in periods.items() if times > 1]:
        raise terms_refused(
            f"two rounds sum period {join_names(twice)}, and its records would count twice: pass one round for each period"
        )
    for round_ in finished:
        spec = round_.attempt.spec
        if spec.noisy:
            raise terms_refused(f"round {round_.id} is noisy: only exact sums are combined")
        if spec.question.digest != first.attempt.question.digest:
            raise terms_refused(
                f"rounds {round_.id} and {first.id} ask different questions: combine periods of one question"
            )
        if spec.withheld != first.attempt.spec.withheld:
            raise terms_refused(
                f"rounds {round_.id} and {first.id} withhold different classes: combine periods that withhold the same"
            )
        if round_.attempt.content.after.readers != first.attempt.content.after.readers:
            raise terms_refused(
                f"the heads of rounds {round_.id} and {first.id} are for different readers: combine periods with the same readers"
            )


def list_blobs(record: CombinedRecord) -> Iterator[tuple[str, str]]:
    """Yield each blob of a combination beside its record, and its SHA-256."""
    if record.head is not None:
        yield _part_name(record, HEAD_DOCUMENT), record.head
    yield _part_name(record, SUMS_DOCUMENT), record.sums
