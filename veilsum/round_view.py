"""A round as commands print it."""

from collections.abc import Sequence
from typing import Any

from protocol.preflight import OutlookView, PreflightView
from protocol.rest import RoundView, round_name
from protocol.trust import TRUST
from veilsum.asking import promised
from veilsum.console import clock, say


def line(view: RoundView) -> str:
    """How far a round is, for whom it waits and until when, in one line."""
    waiting = f", waiting for {', '.join(view.waiting_for)}" if view.waiting_for else ""
    until = f" until {clock(view.deadline_s)}" if view.deadline_s is not None else ""
    return f"{view.state}: {len(view.uploaded)} of {len(view.members)} uploaded{waiting}{until}"


def show(view: RoundView, *, as_json: bool) -> None:
    """Print all that a round's view says, as names and values or as JSON."""
    if as_json:
        say(view.model_dump(mode="json"), as_json=True)
        return
    values: dict[str, Any] = {
        "round": view.round,
        "trust": TRUST,
        "state": view.state,
        "place": f"round {view.sequence}, attempt {view.attempt}",
        "uploaded": f"{len(view.uploaded)} of {len(view.members)}, {view.survivors_min} needed",
    }
    waiting = f"{', '.join(view.waiting_for)} until {clock(view.deadline_s)}" if view.waiting_for else ""
    known = {
        "waiting_for": waiting,
        "reported": f"{len(view.reported)}, {view.reports_min} needed" if view.reported else "",
        "survivors": view.survivors,
        "evicted": view.evicted,
        **_classes(view),
        **_asked(view),
        "cost": None if view.ended else view.cost,
        "seconds": view.phase_seconds,
        "transcript": view.transcript,
    }
    values |= {name: value for name, value in known.items() if value}
    if view.fault is not None:
        values["why"] = f"{view.fault.cause}: {view.fault.detail}"
        if view.fault.rounds:
            values |= {"would_expose": view.fault.group, "together_with": view.fault.rounds}
    if (following := _NEXT.get(view.state)) is not None:
        values["next"] = following.format(round=view.round)
    say(values, as_json=False, title="Round")


def show_foreseen(views: Sequence[PreflightView], *, as_json: bool) -> None:
    """Print what would be opened, in that order."""
    if as_json:
        say({"would_open": [view.model_dump(mode="json") for view in views]}, as_json=True)
        return
    for view in views:
        terms = view.terms
        known = {
            "trust": TRUST,
            "asks": terms.statistic,
            "parameters": terms.parameters,
            "of": f"{view.members} members, {view.survivors_min} needed",
            "numbers": f"{terms.elements:,}, {terms.lattice} lattice, {terms.lattice_bits} of {terms.ring_bits} bits",
            "records_at_most": terms.records_max,
            "withheld": "by the counts" if view.counts_first else terms.withheld,
            "latest_end": clock(terms.latest_end_s),
            "noise": None if terms.noise is None else promised(terms.noise)["noise"],
            "outlook": _outlook(view.outlook),
            "decryptors": view.decryptors.sentence,
            "cost": view.cost,
            "verdict": _AFTER_COUNTS if view.counts_first else "it would be opened",
        }
        shown = {name: value for name, value in known.items() if value}
        say(shown, as_json=False, title="A round that was not opened")


_AFTER_COUNTS = "it would be opened after a round that counts how many members hold each class"


def _outlook(outlook: OutlookView | None) -> str | None:
    if outlook is None:
        return None
    return (
        f"{outlook.verdict}: a head of it is expected to lose {outlook.median_loss:g} points of accuracy, and up to "
        f"{outlook.worst_loss:g} were measured, if all those records come"
    )


def _asked(view: RoundView) -> dict[str, Any]:
    """What a round asks, and what it promises of privacy."""
    if view.terms is None or view.terms.dim is None:
        return {}
    noise = {} if view.terms.noise is None else promised(view.terms.noise)
    return {"asks": view.terms.statistic, "parameters": view.terms.parameters, **noise}


def _classes(view: RoundView) -> dict[str, Any]:
    """What a round counts of the classes, or leaves out by such counts."""
    values: dict[str, Any] = {}
    if view.terms is not None and view.terms.statistic == "indicator":
        values["counts"] = (
            "how many members hold each class; `veilsum operator round open` opens the round that withholds by it"
        )
    if view.holders:
        values["holders"] = {f"class {label}:": count for label, count in enumerate(view.holders)}
    if view.terms is not None and view.terms.indicator is not None:
        values["withheld"] = list(view.terms.withheld)
        values["counted_in"] = f"round {round_name(bytes.fromhex(view.terms.indicator))}"
    return values


_NEXT = {
    "erasing": "the latest end has passed: each decryptor runs its command again, erases what it holds and reports. If too few can "
    "come back, the admin runs `veilsum admin close {round} --folder ADMIN`",
    "erased": "nothing was opened: open the next round",
    "failed": "the survivors are certified and count as opened, but there is no sum: open the next round over the same set",
    "voided": "nothing was opened: open the next attempt",
    "lost": "the admin closed it: no exact round takes the lineages uploaded to it again; open the next round",
}
