"""The states of a round in words. What an end means is in `veilsum.study.progress`."""

from dataclasses import dataclass
from typing import Literal

Tone = Literal["live", "good", "quiet", "bad"]


@dataclass(frozen=True)
class Words:
    """A state's name, its colour, and what happens in it; empty for an end."""

    title: str
    tone: Tone
    meaning: str = ""


STATE_WORDS: dict[str, Words] = {
    "collecting": Words(
        "collecting uploads",
        "live",
        "Members mask their statistics and upload them. The round goes on when all uploads are in, or at the deadline if enough are.",
    ),
    "checking": Words(
        "checking boxes",
        "live",
        "Decryptors open the share boxes that members dealt to them, and sign receipts. Members that dealt false boxes are left out before "
        "a set is signed.",
    ),
    "freezing": Words(
        "freezing the set", "live", "Decryptors sign the set of members in the sum. They sign one set only."
    ),
    "revealing": Words(
        "revealing",
        "live",
        "The set is certified. Decryptors reveal shares of its masks' seeds, which open the sum and nothing else.",
    ),
    "recovered": Words(
        "solving",
        "live",
        "The masks' seeds are rebuilt. The coordinator takes the masks off the sum and solves for the head.",
    ),
    "done": Words("done", "good", "The sum is checked, the head is solved, and the record is signed."),
    "failed": Words("failed", "bad"),
    "voiding": Words("ending VOID", "live"),
    "voided": Words("VOID", "quiet"),
    "erasing": Words("erasing", "bad"),
    "erased": Words("VOID", "quiet"),
    "lost": Words("closed by the admin", "quiet"),
}

PHASES = ("collecting", "checking", "freezing", "revealing", "recovered", "done")
"""The way to a result."""
