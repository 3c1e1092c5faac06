"""Periods: a head from the sums of several rounds, held against this member's evidence of each of them."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from calibration.head_file import Calibrated
from calibration.questions import Question
from client_sdk.asked import terms_question
from client_sdk.errors import mismatch
from client_sdk.result import Floats, Result, calibrated_in, check_head
from protocol.published import ALIKE, CombinedRecord
from protocol.record import verify_record


@dataclass(frozen=True, repr=False, eq=False)
class Combined:
    """What the coordinator made of several rounds.

    Attributes:
        record: what it signed.
        weights_file: the safetensors file as it came.
    """

    record: CombinedRecord
    weights_file: bytes

    @property
    def weights(self) -> Floats:
        """(dim, C) float64, for features of length 1: scores = z @ weights + bias."""
        return self.calibrated.head.weights

    @property
    def bias(self) -> Floats | None:
        """(C,) float64; None without one."""
        return self.calibrated.head.bias

    @cached_property
    def calibrated(self) -> Calibrated:
        """The head, as its file says; PeerFault(result-mismatch) where it holds none."""
        return calibrated_in(self.weights_file)

    def verify(self, results: Sequence[Result], admin_key: bytes | str | None = None) -> None:
        """Check the combination against the rounds it says it is of, in this order.

        1. each result holds (`Result.verify`), and they are those of the record's parts, one each (result-mismatch);
        2. the coordinator's signature on the record (bad-signature);
        3. each part is what its round's own record says; the rounds sum the same thing; the record's federation, statistic,
           extractor, vectors and records follow from them (result-mismatch);
        4. no lineage stands in two of the rounds (result-mismatch);
        5. the weights file's digest, then its tensors (result-mismatch).

        Args:
            results: this member's, of all the rounds.
            admin_key: the pinned key, 32 bytes or their 64 hexadecimal digits; None checks against the keys that the rosters themselves name.

        Raises:
            PeerFault: the first of these that does not hold.
        """
        by_round = {result.record.round: result for result in results}
        if sorted(by_round) != sorted(part.round for part in self.record.parts) or not results:
            raise mismatch("the results are not those of the rounds that were combined")
        for result in results:
            result.verify(admin_key)
            verify_record(self.record, result.evidence.roster.coordinator)
        self._check_parts(by_round)
        self._check_apart(results)
        if hashlib.sha256(self.weights_file).hexdigest() != self.record.weights_sha256:
            raise mismatch("the weights file is not the one that the record names")
        check_head(_widest(results), self.weights_file)

    def _check_parts(self, by_round: dict[str, Result]) -> None:
        record = self.record
        for part in record.parts:
            own = by_round[part.round].record
            for field in type(part).model_fields:
                if getattr(part, field) != getattr(own, field):
                    raise mismatch(f"part {part.round} has another {field} than the round itself")
        terms = [result.evidence.opening.terms for result in by_round.values()]
        asked = [terms_question(result.evidence.attempt) for result in by_round.values()]
        widest = _widest([*by_round.values()])
        alike = all(getattr(each, field) == getattr(terms[0], field) for each in terms for field in ALIKE)
        if not alike or not all(widest.widens(each) for each in asked):
            raise mismatch("the rounds do not sum the same thing")
        records = [result.record for result in by_round.values()]
        expected = {
            "federation": records[0].federation,
            "statistic": records[0].statistic,
            "extractor": records[0].extractor,
            "vectors": sum(len(result.summed) for result in by_round.values()),
            "records": sum(each.records for each in records),
        }
        for field, value in expected.items():
            if getattr(record, field) != value:
                raise mismatch(
                    f"{field} is {getattr(record, field)} in the record, {value} follows from the rounds"
                )

    def _check_apart(self, results: Sequence[Result]) -> None:
        columns = [(s.member, s.lineage) for result in results for s in result.certificate.survivors]
        if len(set(columns)) != len(columns):
            raise mismatch("a lineage stands in two of the rounds: its records count twice")


def _widest(results: Sequence[Result]) -> Question:
    """The question over the most classes: later periods may know some that earlier ones did not."""
    return max(
        (terms_question(result.evidence.attempt) for result in results), key=lambda asked: asked.classes
    )
