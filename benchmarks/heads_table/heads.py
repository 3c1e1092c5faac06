"""Every head of docs/heads.md through rounds, beside what plain sums say, and under noise."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.heads_table.features import Features
from benchmarks.heads_table.federation import DELTA, Federation, Held
from calibration import CentredHead, Head
from calibration.head_file import Calibrated, arrays_of
from calibration.lattice import SumsLattice
from calibration.privacy import gdp_epsilon, gdp_mu, solve_adassp
from calibration.questions import Answer, Earlier, Question, Summed, Wish, ask, question
from calibration.random_features import KernelHead
from client_sdk.asked import terms_question

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
MEAN_SHARE = 0.1  # of μ², for the round of means that centred and random features rest on
FINE_BITS = 62  # of int64: a finer step than float64 sums of as many records have
SIZE = 512
POSTERIOR = "posterior: the half it knows best"
DRAWS = 4  # rounds of FFC at each ε, on which promises about noise hang
NOISY_SIZE = 256  # random features under noise, which more of them spread over more numbers


@dataclass(frozen=True, kw_only=True)
class Row:
    """One cell of the table under one seed; a result file holds a list of them.

    Attributes:
        head: as tables name it.
        path: "plain", sums in the clear, or "secure", through rounds.
        accuracy: on the test records, in 0..1.
        epsilon: ε at δ = 1e-5 of all rounds together; None for exact sums.
        off_by: max|W − W_plain| / max|W_plain|; None under noise, and for the plain path.
        agreement: the share of test records that both paths' heads call the same; None as `off_by`.
        same_sums: whether the masked sum is, bit for bit, that of the members' vectors in the clear; None as `off_by`.
        lattice: of the last round.
        adassp: the accuracy that AdaSSP has from the same noisy sums; None of other heads than ridge heads of V̂ and Û.
        transcripts: SHA-256 of the signed transcript of each round that led here, the last one last.
        upload_bytes: that a member sent in the last round, the mean over members.
        cpu_s: of the last round, all members and the coordinator.
    """

    head: str
    path: str
    accuracy: float
    epsilon: float | None = None
    off_by: float | None = None
    agreement: float | None = None
    same_sums: bool | None = None
    lattice: str | None = None
    adassp: float | None = None
    transcripts: tuple[str, ...] = ()
    upload_bytes: int | None = None
    cpu_s: float | None = None


@dataclass(frozen=True, eq=False)
class Both:
    """A question answered through a round and from plain sums."""

    held: Held
    plain: Answer
    statistics: Any
    same_sums: bool
    before: tuple[str, ...]

    @property
    def earlier(self) -> Earlier:
        """As another plain question rests on it."""
        return Earlier(self.held.result.record.statistic, self.statistics, self.plain.head)

    @property
    def transcripts(self) -> tuple[str, ...]:
        return (*self.before, self.held.transcript)


@dataclass(frozen=True, eq=False)
class Compared:
    """Heads of one set of features.

    Exact and noisy rounds need a federation each: members never use a record for both, nor does their SDK let them.
    """

    features: Features
    federation: Federation

    def noisy(self) -> Iterator[Row]:
        """The same heads under noise, at every ε."""
        for epsilon in EPSILONS:
            yield from self._noisy(epsilon)

    def exact(self) -> Iterator[Row]:
        """Every head, through rounds and from plain sums."""
        ffc = self._both("ffc", {"publish": "lda,ncm,posterior"})
        yield from self._pair("FFC", ffc)
        head, plain = (each.with_unit_columns() for each in self._heads(ffc))
        yield from self._rows("FFC, unit columns", ffc, head, plain)
        for name, title in (("lda", "LDA"), ("ncm", "nearest class mean")):
            document = Calibrated.of(ffc.plain.documents[name].arrays, ffc.plain.documents[name].notes)
            yield from self._rows(title, ffc, ffc.held.result.head(name).head, document.head)
        yield from self._posterior(ffc)
        yield from self._pair("FFC with a bias", self._both("ffc-bias"))
        yield from self._pair("random features", self._both("rff", {"size": SIZE}, before=ffc))
        yield from self._pair("CCVR", self._both("ccvr", self._drawn))

    def _noisy(self, epsilon: float) -> Iterator[Row]:
        asked = self.federation.ask
        first, second = _part_of(epsilon, MEAN_SHARE), _part_of(epsilon, 1 - MEAN_SHARE)
        ffc = asked("ffc", epsilon=epsilon)
        for held in (ffc, *(asked("ffc", epsilon=epsilon) for _ in range(1, DRAWS))):
            yield self._ridge("FFC", epsilon, held)
        yield self._ridge("FFC, unit columns", epsilon, ffc, unit_columns=True)
        yield from self._beside(epsilon)
        yield self._ridge("FFC with a bias", epsilon, asked("ffc-bias", epsilon=epsilon))
        mean = asked("mean", epsilon=first)
        yield self._ridge("FFC, centred", epsilon, mean, asked("ffc", rests_on=mean, epsilon=second))
        rff = asked("rff", parameters={"size": NOISY_SIZE}, rests_on=mean, epsilon=second)
        yield self._ridge("random features", epsilon, mean, rff)
        yield self._noised("CCVR", epsilon, asked("ccvr", parameters=self._drawn, epsilon=epsilon))

    def _beside(self, epsilon: float) -> Iterator[Row]:
        """What a noisy round of FFC publishes beside its head, whose counts take a part of the budget."""
        held = self.federation.ask("ffc", parameters={"publish": "lda,ncm,posterior"}, epsilon=epsilon)
        for name, title in (("lda", "LDA"), ("ncm", "nearest class mean")):
            yield self._noised(title, epsilon, held, head=held.result.head(name).head)
        known = self._known(held.result.calibrated.head, held.result.arrays("posterior"))
        right = self._right(held.result.calibrated.head)[known]
        yield self._noised(POSTERIOR, epsilon, held, accuracy=float(right.mean()))

    def _noised(
        self,
        title: str,
        epsilon: float,
        *rounds: Held,
        head: Head | None = None,
        accuracy: float | None = None,
        adassp: float | None = None,
    ) -> Row:
        """The last round's head, unless another or its accuracy is given."""
        last = rounds[-1]
        if accuracy is None:
            accuracy = self._accuracy(last.result.calibrated.head if head is None else head)
        return Row(
            head=title,
            path="secure",
            accuracy=accuracy,
            epsilon=epsilon,
            lattice=last.result.evidence.opening.terms.lattice,
            adassp=adassp,
            transcripts=tuple(held.transcript for held in rounds),
            upload_bytes=last.upload_bytes,
            cpu_s=last.cpu_s,
        )

    def _ridge(self, title: str, epsilon: float, *rounds: Held, unit_columns: bool = False) -> Row:
        """With what AdaSSP makes of the same sums."""
        held = rounds[-1]
        head = held.result.calibrated.head
        V, U, deviation = held.noisy_sums()
        found = solve_adassp(V, U, deviation, bias=head.bias is not None)
        baseline = Head(found.weights, found.bias, ())
        if isinstance(head, CentredHead):
            baseline = CentredHead(found.weights, found.bias, (), head.centre)
        if isinstance(head, KernelHead):
            baseline = head.map.head(baseline)
        if unit_columns:
            head, baseline = head.with_unit_columns(), baseline.with_unit_columns()
        return self._noised(title, epsilon, *rounds, head=head, adassp=self._accuracy(baseline))

    @property
    def _drawn(self) -> dict[str, Any]:
        """How CCVR's draws are made."""
        return {"tukey": self.features.nonnegative}

    def _both(
        self,
        statistic: str,
        parameters: dict[str, Any] | None = None,
        *,
        before: Both | None = None,
    ) -> Both:
        held = self.federation.ask(
            statistic,
            parameters=parameters,
            rests_on=before.held if before else None,
        )
        attempt = held.result.evidence.attempt
        terms = attempt.opening.terms
        step = SumsLattice(terms.lattice_bits)
        members = self.features.members
        # What it rests on comes from plain sums too, and steps are as fine as int64 has them.
        wish = Wish(self.features.dim, self.features.classes, parameters or {})
        plain = ask(statistic, wish, before.earlier if before else None)
        asked = question(statistic, plain.layout, attempt.context, plain.material)
        fine = SumsLattice.for_ring(FINE_BITS, sum(map(len, members)), len(members))
        if before:  # the two questions are a rounding apart, as what they rest on is
            (total,) = self._totals(terms_question(attempt, held.result.material), [step], members)
            (again,) = self._totals(asked, [fine], members)
        else:
            total, again = self._totals(asked, [step, fine], members)
        summed, gathering = Summed(fine, len(members)), asked.gathering(fine)
        gathering.take(0, again)
        statistics = asked.gathered(gathering, summed)
        same = bool(np.array_equal(held.sums, total))
        transcripts = before.transcripts if before else ()
        return Both(held, asked.answer(statistics, summed), statistics, same, transcripts)

    def _totals(
        self, asked: Question, lattices: Sequence[SumsLattice], members: Sequence[npt.NDArray[np.int64]]
    ) -> list[npt.NDArray[np.int64]]:
        """The members' vectors, added as they are, on each lattice."""
        totals = [np.zeros(asked.layout.elements, np.int64) for _ in lattices]
        for rows in members:
            accumulator = asked.accumulator(lattices[0], normalise=True)
            accumulator.update(self.features.z[rows], self.features.y[rows])
            for lattice, total in zip(lattices, totals, strict=True):
                start = 0
                for piece in accumulator.pieces(lattice, 1 << 20):
                    total[start : start + len(piece)] += piece
                    start += len(piece)
        return totals

    def _heads(self, both: Both) -> tuple[Head, Head]:
        assert both.plain.head is not None
        return both.held.result.calibrated.head, both.plain.head

    def _pair(self, title: str, both: Both) -> Iterator[Row]:
        head, plain = self._heads(both)
        yield from self._rows(title, both, head, plain)

    def _rows(self, title: str, both: Both, head: Head, plain: Head) -> Iterator[Row]:
        yield Row(head=title, path="plain", accuracy=self._accuracy(plain))
        off_by = apart(arrays_of(head), arrays_of(plain))
        yield self._secure(title, both, self._accuracy(head), off_by, self._agreement(head, plain))

    def _secure(self, title: str, both: Both, accuracy: float, off_by: float, agreement: float) -> Row:
        return Row(
            head=title,
            path="secure",
            accuracy=accuracy,
            off_by=off_by,
            agreement=agreement,
            same_sums=both.same_sums,
            lattice=both.held.result.evidence.opening.terms.lattice,
            transcripts=both.transcripts,
            upload_bytes=both.held.upload_bytes,
            cpu_s=both.held.cpu_s,
        )

    def _posterior(self, ffc: Both) -> Iterator[Row]:
        """The ridge head on the half of the test records that it knows best, by their leverage."""
        document = ffc.plain.documents["posterior"].arrays
        secure = ffc.held.result.arrays("posterior")
        found, knows = list[float](), list[npt.NDArray[np.bool_]]()
        for arrays, head in zip((secure, document), self._heads(ffc), strict=True):
            knows.append(self._known(head, arrays))
            found.append(float(self._right(head)[knows[-1]].mean()))
        yield Row(head=POSTERIOR, path="plain", accuracy=found[1])
        agreement = float((knows[0] == knows[1]).mean())
        yield self._secure(POSTERIOR, ffc, found[0], apart(secure, document), agreement)

    def _known(self, head: Head, posterior: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.bool_]:
        """The half of the test records of least leverage."""
        whitened = head.rows(self.features.test_z, normalise=True) @ posterior["whitening"].T
        leverage = (whitened**2).sum(axis=1)
        known: npt.NDArray[np.bool_] = leverage <= np.median(leverage)
        return known

    def _predicted(self, head: Head) -> npt.NDArray[np.int64]:
        return head.predict(self.features.test_z, normalise=head.scales)

    def _agreement(self, head: Head, plain: Head) -> float:
        return float((self._predicted(head) == self._predicted(plain)).mean())

    def _right(self, head: Head) -> npt.NDArray[np.bool_]:
        right: npt.NDArray[np.bool_] = self._predicted(head) == self.features.test_y
        return right

    def _accuracy(self, head: Head) -> float:
        return float(self._right(head).mean())


def _part_of(epsilon: float, share: float) -> float:
    """The ε of a round that takes this share of μ²."""
    return gdp_epsilon(gdp_mu(epsilon, DELTA) * share**0.5, DELTA)


def apart(arrays: Mapping[str, npt.NDArray[Any]], plain: Mapping[str, npt.NDArray[Any]]) -> float:
    """The largest max|Δ| / max|plain| of arrays of the same names."""
    assert arrays.keys() == plain.keys()
    return max(
        float(np.abs(arrays[name] - plain[name]).max() / max(np.abs(plain[name]).max(), 1e-300))
        for name in plain
    )
