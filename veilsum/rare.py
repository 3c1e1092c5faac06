"""What was done about classes that few members hold, as people read it."""

from collections.abc import Sequence

from protocol.rest import RareView, ResultRecord

PUBLISHED = (
    "published, by the admin's signature (m = 0): a class that one member alone holds shows in the sum"
)


def rare_classes(record: ResultRecord) -> str:
    """What a result withholds, and why."""
    return PUBLISHED if record.rare is None else withheld(record.withheld, record.rare)


def withheld(classes: Sequence[int], rare: RareView) -> str:
    """Which classes are left out of a sum, with the counts that decide it."""
    floor = f"m = {rare.floor}"
    rule = f"{rare.floor - rare.margin} and a margin of {rare.margin} for members that may be missing"
    if not classes:
        return f"none withheld: each class is held by {floor} members or more ({rule})"
    named = ", ".join(f"{label} (held by {rare.holders[label]})" for label in classes)
    return f"withheld, for fewer than {floor} members hold them ({rule}): {named}"
