"""Every attack, with the rule that stops it and the cause of its refusal."""

from typing import Any

from assurance.attacks import (
    plays,
    plays_of_pairing,
    plays_with_values,
    to_auditors,
    to_coordinator,
    to_decoders,
    to_members,
    to_readers,
)
from assurance.attacks.base import Attack, Decoded, Shown
from assurance.attacks.to_readers import Recorded
from assurance.vectors.rounds import played

Json = dict[str, Any]


ATTACKS: tuple[Attack, ...] = (
    *to_members.attacks(),
    *to_coordinator.attacks(),
    *to_decoders.attacks(),
    *plays.attacks(),
    *plays_of_pairing.attacks(),
    *plays_with_values.attacks(),
    *to_auditors.attacks(),
    *to_readers.attacks(),
)


def exported() -> list[Json]:
    """Export all attacks to JSON; those with a single message include its bytes."""
    return [_exported(attack) for attack in ATTACKS]


def _exported(attack: Attack) -> Json:
    said: Json = {
        "name": attack.name,
        "rule": attack.rule,
        "survives": attack.survives,
        "cause": attack.cause.value,
        "parties": list(attack.parties),
    }
    if isinstance(attack, Decoded):
        return {**said, "message": attack.message.hex()}
    if isinstance(attack, Recorded):
        return {**said, **attack.doctoring.changes}
    if not isinstance(attack, Shown):
        return said
    begun_s = played(attack.round).document["now_s"]
    clock = {} if attack.clock_s == begun_s else {"now_s": attack.clock_s}
    where = {"round": attack.round, "attempt": attack.attempt, "to": attack.to, "after": attack.place}
    return {**said, **where, **clock, **_spliced(attack)}


def _spliced(attack: Shown) -> Json:
    """Export the false message as cuts into the honest one, if they are shorter than the message."""
    index, honest = attack.honest
    kept, false = honest.to_bytes(), attack.message
    ends = min(64, len(kept), len(false))  # length of a signature at the end
    whole, body = [_cut(kept, false, 0)], [_cut(kept[:-ends], false[:-ends], 0)]
    ending = _cut(kept[-ends:], false[-ends:], len(kept) - ends)
    cuts = min(whole, [*body, ending], _cuts_in_place(kept, false), key=lambda found: len(str(found)))
    if len(str(cuts)) < 2 * len(false):
        return {"honest": index, "cuts": [cut for cut in cuts if cut[1] or cut[2]]}
    return {"message": false.hex()}


APART_BYTES = 24
"""Differences that are nearer to each other are one cut."""


def _cuts_in_place(kept: bytes, false: bytes) -> list[list[Any]]:
    """Return all differences of two messages of one length; of others, the difference from the first byte that differs."""
    if len(kept) != len(false):
        return [_cut(kept, false, 0)]
    places = [place for place, pair in enumerate(zip(kept, false, strict=True)) if pair[0] != pair[1]]
    runs: list[list[int]] = []
    for place in places:
        if runs and place - runs[-1][1] < APART_BYTES:
            runs[-1][1] = place
        else:
            runs.append([place, place])
    return [[first, last + 1 - first, false[first : last + 1].hex()] for first, last in runs]


def _cut(kept: bytes, false: bytes, start: int) -> list[Any]:
    """Return the position of a difference, how many bytes are removed, and their replacement in hexadecimal."""
    most = min(len(kept), len(false))
    before = next((i for i in range(most) if kept[i] != false[i]), most)
    behind = next((i for i in range(most - before) if kept[-1 - i] != false[-1 - i]), most - before)
    return [start + before, len(kept) - before - behind, false[before : len(false) - behind].hex()]
