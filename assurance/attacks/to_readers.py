"""Signed records of a coordinator that contradict the round."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from assurance.attacks.base import Attack
from assurance.vectors.results import OTHER, Doctoring, read
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault

Json = dict[str, Any]


@dataclass(frozen=True)
class Recorded(Attack):
    """A signed record that doesn't follow from its round."""

    doctoring: Doctoring

    def run(self) -> PeerFault:
        """Show the record to a member of the round."""
        try:
            read(self.doctoring.case["input"])
        except PeerFault as fault:
            return fault
        raise AssertionError(f"{self.name}: it was believed")


def changed(**changes: Any) -> Callable[[Json], Json]:
    return lambda body: body | changes


def fewer(body: Json) -> Json:
    return body | {"survivors": body["survivors"][1:]}


def misnamed(body: Json) -> Json:
    first, *others = body["survivors"]
    return body | {"survivors": [first | {"digest": OTHER}, *others]}


DISPUTED = {"cause": "edge-disagreement", "parties": ["member-1", "member-4"]}
DOCTORED: tuple[tuple[str, str, str, int, Callable[[Json], Json]], ...] = (
    ("under another round's name", "RESULT-3", "complete", 0, changed(round=OTHER[:16])),
    ("of another federation", "RESULT-3", "complete", 0, changed(federation=OTHER)),
    ("of another cohort", "RESULT-3", "complete", 0, changed(cohort=OTHER)),
    ("of another context", "RESULT-3", "complete", 0, changed(context=OTHER)),
    ("of another study", "RESULT-3", "complete", 0, changed(study=OTHER)),
    ("of a study of another name", "RESULT-3", "complete", 0, changed(name="another")),
    ("of another version of the study", "RESULT-3", "complete", 0, changed(version=2)),
    ("of another period", "RESULT-3", "complete", 0, changed(period="period-9")),
    ("of another step", "RESULT-3", "complete", 0, changed(step="sum")),
    ("of other terms", "RESULT-3", "complete", 0, changed(terms=OTHER)),
    ("with another set of survivors", "RESULT-3", "complete", 0, changed(survivors_hash=OTHER)),
    ("with a survivor less", "RESULT-3", "complete", 0, fewer),
    ("with another upload of a survivor", "RESULT-3", "complete", 0, misnamed),
    ("that drops whom no dispute costs its place", "RESULT-4", "complete", 0, changed(dropped=["member-4"])),
    ("whose dispute drops nobody", "RESULT-4", "complete", 0, changed(disputes=[DISPUTED])),
    ("with somebody evicted who is not proved false", "RESULT-5", "complete", 0, changed(evicted=["member-1"])),
    ("that keeps who was proved false", "RESULT-5", "evicted", 0, changed(evicted=[])),
    ("that withholds what the terms do not", "RESULT-6", "complete", 0, changed(withheld=[1])),
    ("that publishes what the terms withhold", "RESULT-6", "count", 2, changed(withheld=[])),
    ("without counts", "RESULT-6", "count", 2, changed(holders=[])),
    ("of counts that leave other classes below the floor", "RESULT-6", "count", 2, changed(holders=[4, 4, 4, 4, 4])),
    ("without counted rows", "RESULT-6", "count", 2, changed(reached=[])),
    ("of rows that are too few", "RESULT-6", "count", 2, changed(reached=[0] * 8)),
    ("that leaves out an earlier count of the question", "RESULT-6", "count", 2, changed(counts=[])),
    ("of an exact sum of a noisy study", "RESULT-7", "complete", 0, changed(noise=None)),
    ("that names another transcript", "RESULT-9", "complete", 0, changed(transcript=OTHER)),
    ("of more rows than the study admits", "RESULT-7", "evicted", 0, changed(rows=10**12)),
)  # fmt: skip


def attacks() -> list[Attack]:
    """Return the attacks: false records that the coordinator signed, and one that it did not."""
    false = [
        Doctoring(f"a record {name}", rule, round_, number, body)
        for name, rule, round_, number, body in DOCTORED
    ]
    forged = Doctoring("a record that the admin signed", "RESULT-2", "complete", 0, changed(), "admin")
    met = [*((Cause.RESULT_MISMATCH, each) for each in false), (Cause.BAD_SIGNATURE, forged)]
    return [
        Recorded(each.name, each.rule, "records doctored", cause, ("coordinator",), each)
        for cause, each in met
    ]
