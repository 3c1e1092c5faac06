"""What helpers send the coordinator, made by hand."""

from collections.abc import Callable
from typing import Any

import pytest

from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.helpers.coordinator import Checking
from protocol.helpers.helper import Standing
from protocol.helpers.messages import HelperCard, HelperReceipt, HelperRefusal, HelperVote
from protocol.helpers.simulator import HelperFederation
from protocol.messages.base import Message


def cause(call: Callable[..., object], *arguments: Any) -> Cause:
    with pytest.raises(PeerFault) as refused:
        call(*arguments)
    return refused.value.cause


def cards(federation: HelperFederation) -> dict[str, HelperCard]:
    made = {}
    for helper, standing in federation.phases.items():
        assert isinstance(standing, Standing)
        _, [card] = standing.enrol(federation.keys[helper], expires_s=2_000_000)
        assert isinstance(card, HelperCard)
        made[helper] = card
    return made


def receipt(federation: HelperFederation, helper: str, *complaints: int, **changes: Any) -> HelperReceipt:
    names = tuple(federation.ids[index] for index in complaints)
    values: dict[str, Any] = {
        "context": federation.attempt.context,
        "member": helper,
        "dealers": tuple(client for client in federation.ids if client not in names),
        "complaints": names,
    }
    return HelperReceipt.make(federation.keys[helper], **{**values, **changes})


def checked(federation: HelperFederation, checking: Checking, *complaints: tuple[int, ...]) -> Any:
    phase: Any = checking
    for helper, clients in zip(federation.helpers, complaints, strict=False):
        phase = phase.receive(receipt(federation, helper, *clients), federation.now_s)
    return phase


def vote(federation: HelperFederation, helper: str, outcome: bytes, **changes: Any) -> HelperVote:
    values = {"context": federation.attempt.context, "member": helper, "outcome": outcome, **changes}
    return HelperVote.make(federation.keys[helper], **values)


def refusal(federation: HelperFederation, helper: str, **changes: Any) -> HelperRefusal:
    values = {
        "context": federation.attempt.context,
        "member": helper,
        "cause": "ledger-refused",
        **changes,
    }
    return HelperRefusal.make(federation.keys[helper], **values)


def after(phase: Any, *messages: Message) -> Any:
    for message in messages:
        phase = phase.receive(message, 0.0)
    return phase
