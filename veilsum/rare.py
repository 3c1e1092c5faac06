"""What was done about classes that few members hold, as people read it."""

from collections.abc import Sequence

from protocol.published import RareView

PUBLISHED = (
    "published, by the admin's signature (m = 0): a class that one member alone holds shows in the sum"
)


def rare_classes(withheld: Sequence[int], rare: RareView | None) -> str:
    """Which classes are left out of a sum, with the counts that decide it."""
    if rare is None:
        return PUBLISHED
    floor = f"m = {rare.floor}"
    rule = f"{rare.floor - rare.margin} and a margin of {rare.margin} for members that may be missing"
    if not withheld:
        return f"none withheld: each class is held by {floor} members or more ({rule})"
    named = ", ".join(f"{label} (held by {rare.holders[label]})" for label in withheld)
    return f"withheld, for fewer than {floor} members hold them ({rule}): {named}"
