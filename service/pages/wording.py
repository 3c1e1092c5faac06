"""What each state of a round means, in words, and what people have to do next."""

from dataclasses import dataclass
from typing import Literal

Tone = Literal["live", "good", "quiet", "bad"]


@dataclass(frozen=True)
class Words:
    """One state.

    Attributes:
        title: its name.
        tone: its colour; the title says the same without.
        meaning: what is or was going on.
        following: what people have to do; empty if nothing.
    """

    title: str
    tone: Tone
    meaning: str
    following: str = ""


STATES: dict[str, Words] = {
    "collecting": Words(
        "collecting uploads",
        "live",
        "Members mask their statistics and upload them. The round goes on when all uploads are in, or at the deadline if enough are.",
    ),
    "checking": Words(
        "checking boxes",
        "live",
        "Decryptors open the share boxes that members dealt to them, and sign receipts. A member that dealt falsely is left out before "
        "a set is signed.",
    ),
    "freezing": Words(
        "freezing the set",
        "live",
        "Decryptors sign, once, which members the sum is over. No second set can be signed after that.",
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
    "failed": Words(
        "failed",
        "bad",
        "The survivors are certified, so their records are spent, but there is no result.",
        "veilsum operator run repeats it, with exactly its survivors.",
    ),
    "voiding": Words(
        "ending VOID",
        "live",
        "There will be no sum. Decryptors sign VOID, which proves that none was opened and makes a new attempt safe.",
    ),
    "voided": Words(
        "VOID",
        "quiet",
        "The attempt ended without a sum. Enough decryptors have signed VOID: nothing was opened, nor can it be.",
        "Open the next attempt.",
    ),
    "erasing": Words(
        "erasing",
        "bad",
        "The latest end has passed without a sum. Decryptors erase what they hold and report what they revealed. Enough reports "
        "of nothing end the attempt VOID, however late they come.",
        "Members start veilsum member join. Only if too few can come back: cancel a certified round and repeat it; the admin closes "
        "any other by veilsum admin close.",
    ),
    "erased": Words(
        "VOID",
        "quiet",
        "The attempt ended without a sum. Enough decryptors have erased what they held and revealed nothing: nothing was opened, "
        "nor can it be.",
        "Open the next round.",
    ),
    "lost": Words(
        "closed by the admin",
        "quiet",
        "Too few decryptors could report, and the admin closed the attempt. The records of this period are spent.",
        "Open a cohort for a new period.",
    ),
}

PHASES = ("collecting", "checking", "freezing", "revealing", "recovered", "done")
"""The way to a result."""
