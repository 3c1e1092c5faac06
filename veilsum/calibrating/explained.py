"""What a round would take from a member and tell to whom, before anything is sent."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from calibration.layout import SymmetricBlock
from calibration.questions import kind
from protocol.trust import TRUST
from veilsum.asking import EXACT, promised

if TYPE_CHECKING:
    from collections.abc import Sequence

    from calibration.layout import Layout
    from calibration.questions import Question
    from protocol.rest import RoundView

_RING_BITS = 48
_ANYBODY = "the signed record and the head: results are read without credentials"
_NOTHING = "nothing of this has been sent"


def of_questions(questions: Sequence[Question]) -> list[dict[str, Any]]:
    """Of rounds that would ask these, one after another, over a ring of 48 bits, without noise."""
    return [
        {
            "question": asked.name,
            "what": asked.title,
            "sums": _sums(asked.layout),
            **_sent(asked.layout.elements, _RING_BITS),
            **_learned(asked.name, str(asked.layout.parameter("publish") or "")),
            "noise": EXACT,
            "trust": TRUST,
            "sent": _NOTHING,
        }
        for asked in questions
    ]


def of_round(view: RoundView, layout: Layout) -> list[dict[str, Any]]:
    """Of a round that is open, as its terms say; `layout` as its opening holds it."""
    terms = view.terms
    assert terms is not None
    given = terms.parameters
    return [
        {
            "round": view.round,
            "question": terms.statistic,
            "members": len(view.members),
            "fewest_in_a_sum": view.survivors_min,
            "sums": _sums(layout),
            **_sent(terms.elements, terms.ring_bits),
            **_learned(terms.statistic, str(given.get("publish", "")), rests=terms.rests_on is not None),
            **promised(terms.noise or "none"),
            "trust": TRUST,
            "sent": _NOTHING,
        }
    ]


def _sent(elements: int, ring_bits: int) -> dict[str, Any]:
    return {
        "numbers": elements,
        "upload_bytes": math.ceil(elements * ring_bits / 8),
        "beside_them": "a signed announcement, whose size depends on the number of members alone",
    }


def _learned(statistic: str, publish: str, *, rests: bool = False) -> dict[str, Any]:
    if statistic == "indicator":
        return {
            "coordinator_learns": "how many members hold each class",
            "members_learn": "the same",
            "anybody_learns": "the same: it stands in the record",
        }
    asked = kind(statistic)
    published = [name for name in publish.split(",") if name]
    if rests:
        published.append("material: what the round before says, and this one rests on")
    return {
        "coordinator_learns": asked.learns,
        "members_learn": "; ".join(published) or "no more than anybody",
        "anybody_learns": _ANYBODY if asked.has_head else "the signed record",
    }


def _sums(layout: Layout) -> str:
    return ", ".join(map(_block, layout.blocks))


def _block(block: Any) -> str:
    size = "×".join(map(str, block.shape))
    return f"{block.name} {size}{', its upper triangle' if isinstance(block, SymmetricBlock) else ''}"
