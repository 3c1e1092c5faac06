"""Phases to begin from."""

from collections.abc import Callable
from typing import Any

import pytest

from protocol.helpers.coordinator import Checking, Collecting, Freezing, Summing
from protocol.helpers.messages import HelperSums
from protocol.helpers.simulator import HelperFederation
from protocol.messages.base import Message
from tests.protocol.helpers.coordinator.answers import checked

Until = Callable[..., Any]


@pytest.fixture
def collecting(federation: HelperFederation) -> Collecting:
    federation.begin(federation.terms(100))
    assert isinstance(federation.phase, Collecting)
    return federation.phase


@pytest.fixture
def checking(federation: HelperFederation, until: Until) -> Checking:
    phase = until(federation, Checking)
    assert isinstance(phase, Checking)
    return phase


@pytest.fixture
def freezing(federation: HelperFederation, checking: Checking) -> Freezing:
    phase = checked(federation, checking, (), (), (), ())
    assert isinstance(phase, Freezing)
    return phase


@pytest.fixture
def summing(federation: HelperFederation, until: Until) -> tuple[Summing, dict[str, HelperSums]]:
    made: dict[str, HelperSums] = {}

    def keep(sender: str, message: Message) -> Message | None:
        if isinstance(message, HelperSums):
            made[sender] = message
            return None
        return message

    federation.tamper = keep
    phase = until(federation, Summing)
    assert isinstance(phase, Summing)
    for helper in federation.helpers:
        federation._serve(helper)
    assert federation.phase is phase
    return phase, made
