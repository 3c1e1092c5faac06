"""Combined periods: a head from the sums of several rounds, verified against this member's evidence of each round."""

from collections.abc import Sequence
from dataclasses import dataclass

from client_sdk.published_head import PublishedHead
from client_sdk.result import Result
from client_sdk.verification import check_published
from veilsum.protocol.record import CombinedRecord, mismatch_fault, verify_record


@dataclass(frozen=True, repr=False, eq=False)
class Combined(PublishedHead):
    """A head that the coordinator solved from the sums of several rounds.

    Attributes:
        record: the coordinator's signed record.
        head_file: the head's safetensors file, as received.
    """

    record: CombinedRecord
    head_file: bytes

    def verify(self, results: Sequence[Result], admin_key: bytes | str | None = None) -> None:
        """Check the combination against its rounds, in this order.

        1. each result holds (`Result.verify`), and there is one for each of the record's parts (result-mismatch);
        2. the coordinator's signature on the record (bad-signature);
        3. each part agrees with its round's own record; the rounds are exact sums of one question over different periods, for the
           same readers; the record's federation, study, vectors and rows follow from them (result-mismatch);
        4. the head's digest, then that the head is the study's and scores no class without rows (result-mismatch).

        Records are reserved for one run each (member: Ledger), so different periods hold different ones.

        Args:
            results: this member's result of each round.
            admin_key: the pinned key, 32 bytes or hexadecimal; None trusts the keys that the rosters name.

        Raises:
            PeerFault: the first of these that does not hold.
        """
        by_round = {result.record.round: result for result in results}
        if sorted(by_round) != sorted(part.round for part in self.record.parts) or not results:
            raise mismatch_fault("the results do not match the rounds that were combined")
        for result in results:
            result.verify(admin_key)
            verify_record(self.record, result.evidence.roster.coordinator)
        latest = next((each for each in results if each.record.study == self.record.study), None)
        if latest is None:
            raise mismatch_fault("the record's study differs from that of all its parts")
        self._check_parts(by_round, latest)
        check_published(self, latest.spec)

    def _check_parts(self, by_round: dict[str, Result], latest: Result) -> None:
        record = self.record
        for part in record.parts:
            own = by_round[part.round].record
            for field in type(part).model_fields:
                if getattr(part, field) != getattr(own, field):
                    raise mismatch_fault(f"part {part.round} has another {field} than the round itself")
        specs = [result.spec for result in by_round.values()]
        periods = {spec.period for spec in specs}
        alike = {(spec.question.digest, spec.withheld, spec.content.after.readers) for spec in specs}
        if not all(spec.sums for spec in specs) or len(alike) > 1 or len(periods) < len(specs):
            raise mismatch_fault(
                "the rounds must be exact sums of one question, over different periods, with the same readers"
            )
        records = [result.record for result in by_round.values()]
        expected = {
            "federation": latest.record.federation,
            "name": latest.record.name,
            "version": latest.record.version,
            "question": latest.spec.question.digest.hex(),
            "withheld": latest.spec.withheld,
            "vectors": sum(len(result.summed) for result in by_round.values()),
            "rows": sum(each.rows for each in records),
        }
        for field, value in expected.items():
            if getattr(record, field) != value:
                raise mismatch_fault(
                    f"{field} is {getattr(record, field)} in the record, {value} follows from the rounds"
                )
