"""One round, decoded once from an attempt's signed documents (wire: Studies, member: Exact vectors, member: Noise)."""

from dataclasses import dataclass
from functools import cached_property

from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import Manifest, Terms
from veilsum.protocol.periods import PeriodKind, kind_of_period
from veilsum.protocol.study import (
    COUNT_BITS,
    DISCLOSED_STEPS,
    JUDGE_BITS,
    JUDGE_STEP,
    SUM_STEP,
    Content,
    Question,
)

CHUNK_ELEMENTS = 1 << 20
"""Number of elements in every chunk except the last (wire: Uploads)."""


@dataclass(frozen=True)
class RoundSpec:
    """One step of a run, as defined by study, manifest and terms.

    Attributes:
        content: the study's content.
        study: the study's hash.
        withheld: classes left out of the sum.
        members: n, number of members in the cohort.
        survivors_min: n_min, minimum number of survivors.
        chunk_elements: number of elements in every chunk except the last.
    """

    content: Content
    study: bytes
    period: str
    step: str
    withheld: tuple[int, ...]
    members: int
    survivors_min: int
    chunk_elements: int

    @classmethod
    def of(cls, content: Content, manifest: Manifest, terms: Terms) -> "RoundSpec":
        """Decode a round. Raises PeerFault(terms-refused) if the study lacks the step or a withheld class."""
        question = content.question
        if terms.step not in (steps := question.steps_in(manifest.period)):
            raise PeerFault(
                Cause.TERMS_REFUSED,
                f"step {terms.step!r}: the steps of {content.notes.name}, period {manifest.period}, are {', '.join(steps)}",
                ["coordinator"],
            )
        if terms.withheld and terms.withheld[-1] >= len(question.classes):
            raise PeerFault(
                Cause.TERMS_REFUSED,
                f"class {terms.withheld[-1]} is withheld; the study has {len(question.classes)} classes",
                ["coordinator"],
            )
        return cls(
            content,
            manifest.study,
            manifest.period,
            terms.step,
            terms.withheld,
            len(manifest.members),
            manifest.survivors_min,
            CHUNK_ELEMENTS,
        )

    @property
    def question(self) -> Question:
        return self.content.question

    @property
    def name(self) -> str:
        """The study and period in words, for example "ct-2026, period 2026-11"."""
        return f"{self.content.notes.name}, period {self.period}"

    @property
    def is_disclosed(self) -> bool:
        """Whether the step counts members, so that its sum is disclosed to them (member: Count vectors)."""
        return self.step in DISCLOSED_STEPS

    @property
    def kind(self) -> PeriodKind:
        """Which rows the run adds up."""
        return kind_of_period(self.period)

    @property
    def sums(self) -> bool:
        """Whether the step is the exact study's sum over data."""
        return self.step == SUM_STEP and not self.noisy and self.kind is PeriodKind.DATA

    @property
    def noisy(self) -> bool:
        """Whether the study's sums have noise."""
        return self.question.noise is not None

    @property
    def judges(self) -> bool:
        """Whether the step counts how heads do on held-out records."""
        return self.step == JUDGE_STEP

    @property
    def adds_noise(self) -> bool:
        """Whether members add noise to the step's vectors."""
        return self.judges or (self.noisy and self.kind is PeriodKind.DATA)

    @property
    def ends_run(self) -> bool:
        """Whether the step is the last one of a run over fresh records."""
        return self.step == self.question.steps_in(self.period)[-1]

    @cached_property
    def elements(self) -> int:
        return self.question.elements_of(self.step)

    @property
    def ring_bits(self) -> int:
        """Bits of an element on the wire."""
        if self.judges:
            return JUDGE_BITS
        return COUNT_BITS if self.is_disclosed else self.question.ring_bits

    @property
    def takes_material(self) -> bool:
        """Whether the step needs an earlier step's result (member: Noise)."""
        return self.question.takes_material(self.step)
