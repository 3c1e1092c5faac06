"""The states of a round in words. What an end means is in `veilsum.study.progress`."""

from dataclasses import dataclass
from typing import Literal

from veilsum.protocol.study import DISCLOSED_STEPS

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
        "Members mask their statistics and upload them. The round continues once all uploads are in, or at the deadline if there are enough.",
    ),
    "checking": Words(
        "checking boxes",
        "live",
        "Decryptors open the share boxes addressed to them and sign receipts. Members that dealt false boxes are left out before the set is "
        "signed.",
    ),
    "freezing": Words(
        "freezing the set", "live", "Decryptors sign which members are in the sum. Each signs only one set."
    ),
    "revealing": Words(
        "revealing",
        "live",
        "The set is certified. Decryptors reveal the shares of mask seeds that unmask the sum and nothing else.",
    ),
    "recovered": Words(
        "solving",
        "live",
        "The coordinator rebuilds the mask seeds, removes the masks from the sum, and checks the sum.",
    ),
    "done": Words("done", "good", "The sum is checked, and the record is signed."),
    "failed": Words("failed", "bad"),
    "voiding": Words("ending VOID", "live"),
    "voided": Words("VOID", "quiet"),
    "erasing": Words("erasing", "bad"),
    "erased": Words("VOID", "quiet"),
    "lost": Words("closed by the admin", "quiet"),
}

COUNTED_WORDS = Words("counted", "good", "The numbers are checked and signed. A count spends no records.")


def words_of(state: str, step: str) -> Words:
    """Return the words for a state of a round of this step."""
    return COUNTED_WORDS if state == "done" and step in DISCLOSED_STEPS else STATE_WORDS[state]


PHASES = ("collecting", "checking", "freezing", "revealing", "recovered", "done")
"""The way to a result."""
