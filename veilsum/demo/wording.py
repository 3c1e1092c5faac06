"""Numbers and fates as people read them; the table and the report say the same."""

from veilsum.demo.facts import Facts

PHASE_NAMES = {
    "training": "training SphereFed and FedAvg",
    "enrolment": "process starts and key cards",
    "collecting": "masked uploads",
    "checking": "receipts for sealed shares",
    "freezing": "votes on the survivors",
    "revealing": "shares of the masks",
    "recovered": "unmasking and solving",
    "total": "everything",
}
NUMBER_TO_BEAT = "SphereFed trains under a fixed head, so its accuracy before calibration is not the number to beat: FedAvg's is."
FATES = {
    "card": "killed after its key card: not in the sum",
    "upload": "killed after its upload: still in the sum",
}


def fate(facts: Facts, member: str) -> str:
    """What became of a member: in the sum or not, and why."""
    after = {lost.member: lost.after for lost in facts.lost}.get(member)
    if after is not None:
        return FATES[after]
    return "in the sum" if member in facts.survivors else "too late: not in the sum"


def percent(value: float) -> str:
    """An accuracy in 0..1; – for a class without records."""
    return "–" if value != value else f"{100 * value:.1f} %"  # noqa: PLR0124 - NaN alone differs from itself


def seconds(value: float) -> str:
    """A duration in seconds, with two digits after the point below ten."""
    return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"


def kibibytes(value: int) -> str:
    """A size of so many bytes, in KiB."""
    return f"{value / 1024:.1f} KiB"


def power(value: float) -> str:
    """A number as a multiple of a power of ten, such as 5.0·10⁻⁸."""
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}·10{str(int(exponent)).translate(_SUPERSCRIPT)}"


def rare_classes(facts: Facts) -> str:
    """Which digits were withheld, in a sentence."""
    if not facts.holders:
        return "Every digit is published, even one that a single member holds (thin_classes = true)."
    if not facts.withheld:
        return f"No digit is withheld: {facts.floor} members or more hold each."
    named = ", ".join(f"{label} (held by {facts.holders[label]})" for label in facts.withheld)
    return f"Withheld, because fewer than {facts.floor} members hold them: {named}."


_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
