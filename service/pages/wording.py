"""The states of a round in words: what each means, and what people do next."""

from dataclasses import dataclass
from typing import Literal

Tone = Literal["live", "good", "quiet", "bad"]


@dataclass(frozen=True)
class Words:
    """One state: its name, the colour of it, what happens in it, and what people have to do; empty if nothing."""

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
        "The attempt ended without a sum. Enough decryptors have signed VOID: nothing was opened or can be.",
        "Open the next attempt.",
    ),
    "erasing": Words(
        "erasing",
        "bad",
        "The latest end has passed without a sum. Decryptors erase what they hold and report what they revealed. Enough reports "
        "that nothing was revealed end the attempt as VOID, however late they come.",
        "Members start veilsum member join. Only if too few can come back: cancel a certified round and repeat it; the admin closes "
        "any other by veilsum admin close.",
    ),
    "erased": Words(
        "VOID",
        "quiet",
        "The attempt ended without a sum. Enough decryptors have erased what they held and revealed nothing: nothing was opened, "
        "or can be.",
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
