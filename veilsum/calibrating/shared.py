"""A head with other members: through rounds of which the last ends in it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from safetensors.numpy import save

from calibration.centred import CentredHead
from calibration.head_file import Calibrated
from calibration.layout import Layout
from calibration.questions import kind
from client_sdk import Records
from client_sdk.asked import terms_question
from protocol.rest import HEAD
from veilsum.asking import promised
from veilsum.calibrating.explained import of_round
from veilsum.calibrating.findings import Findings
from veilsum.calibrating.order import CENTRED, DERIVED, Order, halves, judged, records_of
from veilsum.calibrating.saving import save_to
from veilsum.console import note
from veilsum.contribute import Errand, current_round, run
from veilsum.features import Part, checked_features, split
from veilsum.remote import operator

if TYPE_CHECKING:
    from calibration import Personal
    from client_sdk import Result

_FFC = frozenset({"ffc", "ffc-bias"})


def explained(errand: Errand, order: Order) -> list[dict[str, Any]] | None:
    """What the round that this member would take part in now takes from it; None while none is open that leads to the head."""
    view = current_round(_asking(errand, order))
    if view is None:
        return None
    with operator(errand.url, ca=errand.ca) as client:
        terms = client.opening(view.round).terms
    return of_round(view, Layout.from_bytes(terms.layout))


def through_rounds(errand: Errand, order: Order) -> dict[str, Any]:
    """Take part in rounds until one ends in the head, judge it, and write it; only sums of everybody's records are ever seen.

    Raises:
        PeerFault, ClientError, Misuse: as `veilsum.contribute.run`.
    """
    order.check_output([*filter(None, (errand.features,))])
    if order.held_file is not None:
        checked_features(order.held_file, normalise=order.normalise)  # not only once the rounds are over
    asking = _asking(errand, order)
    while True:
        result, values = run(asking, errand.folder / "result")
        statistic = result.record.statistic
        asked = terms_question(result.evidence.attempt)
        if order.head is None or (statistic in _ends(order) and not asked.goes_on and _fits(order, result)):
            break
        note(f"Round {result.record.round}, of {statistic}, is done; {order.head} follows.")
        asking = replace(asking, round_id=None)  # the named one has been
    head = result.head(order.head) if order.head in DERIVED else result.calibrated
    records = _judging(errand, order, head)
    values |= {"head": str(order.output), "never_answers": list(result.unanswered)}
    if order.personal:
        assert records is not None  # or `Order` would have refused
        choosing, records = halves(records)
        values["accuracy_of_the_shared_head"] = judged(head, *records).accuracy
        own = _personal(errand, order, result, choosing)
        head = Calibrated(own)
        values |= {"own_weight": own.weight, "never_answers": list(own.empty_classes)}
        content: bytes | None = save(head.arrays, {HEAD: json.dumps(head.notes)})
    else:
        content = result.documents[order.head] if order.head in DERIVED else result.weights_file
    if order.unit_columns:
        head = replace(head, head=head.head.with_unit_columns())
        content = save(head.arrays, {HEAD: json.dumps(head.notes)})
    assert content is not None  # `calibrated` would have refused
    save_to(order.output, content)
    seen = None if records is None else judged(head, *records)
    findings = Findings.of(order.head, result, head, seen, str(promised(result.record.noise)["noise"]))
    values |= findings.figures
    if records is not None and (withheld := result.record.withheld):
        rest = judged(head, *records, without=withheld)
        values["accuracy_without_withheld"] = rest.accuracy if rest.records else float("nan")
    return values | findings.report(order.report)


def _personal(errand: Errand, order: Order, result: Result, choosing: Part) -> Personal:
    """Their own weight is chosen on records that judge nothing else."""
    contributed, _ = _parts(errand, order)
    return result.personalise(
        Records(*contributed, normalise=order.normalise), Records(*choosing, normalise=order.normalise)
    )


def _ends(order: Order) -> frozenset[str]:
    return _FFC if order.question in _FFC else frozenset({order.question})


def _fits(order: Order, result: Result) -> bool:
    return order.head != CENTRED or isinstance(result.calibrated.head, CentredHead)


def _asking(errand: Errand, order: Order) -> Errand:
    """The errand of rounds that lead to the head, over the records that are not held out."""
    questions = frozenset[str]()
    if order.head is not None:
        asked = kind(order.question)
        questions = frozenset({*_ends(order), *asked.rests_on, *asked.may_rest_on})
    policy = replace(errand.policy, statistics=errand.policy.statistics | questions)
    return replace(errand, policy=policy, questions=questions, held_share=order.held_share)


def _judging(errand: Errand, order: Order, head: Calibrated) -> Part | None:
    if order.held_file is not None:
        return records_of(order.held_file, head, normalise=order.normalise)
    if not order.held_share:
        return None
    return _parts(errand, order)[1]


def _parts(errand: Errand, order: Order) -> tuple[Part, Part]:
    """The records contributed, and those held out."""
    assert errand.features is not None  # a head is one of records
    loaded = checked_features(errand.features, errand.labels, normalise=order.normalise)
    return split(*loaded, order.held_share)
