"""If a coordinator answers every long poll at once, with a new version each time, members still ask only once a second."""

import itertools
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from client_sdk.effects import Flow, Request
from tests.support.answers import Answer, rewritten
from tests.support.consortium import Consortium
from veilsum.protocol.rest import STATE_HEADER, VERSION_HEADER
from veilsum.system.intervals import UNPACED_CHANGES

LOOKS, AT_ONCE = 60, UNPACED_CHANGES + 3
"""How often a test has a member ask, and how many of these requests may come at once."""
LIVELY = itertools.count(1_000)
REQUESTS = "GET .*/requests/.*"


def lively(**changes: Any) -> Answer:
    """Return the same document with another version."""
    return rewritten(lambda shown: {**shown, **changes, "version": next(LIVELY)})


def asked_anew(state: str = "", *, again: bool = True) -> Answer:
    """Return the member's request, or none, with another version and state."""

    def other(answer: httpx.Response) -> httpx.Response:
        headers = {**answer.headers, VERSION_HEADER: str(next(LIVELY))}
        headers[STATE_HEADER] = state or headers[STATE_HEADER]
        return httpx.Response(
            answer.status_code if again else 204, headers=headers, content=answer.content if again else b""
        )

    return other


def enrolling(consortium: Consortium) -> Flow[Any]:
    cohort = consortium.open_cohort()
    consortium.shows("(GET|PUT) /v1/cohorts/.*", lively())
    return consortium.member("member-0").enrol(cohort, consortium.records("member-0"))


def waiting(consortium: Consortium) -> Flow[Any]:
    round_id = consortium.open_round(consortium.enrol())
    consortium.shows(REQUESTS, asked_anew())
    return consortium.member("member-0").contribute(round_id)


def asked_again(consortium: Consortium) -> Flow[Any]:
    """Ask for the upload again, though it was made."""
    round_id = consortium.open_round(consortium.enrol())
    consortium.shows("GET /v1/rounds/[0-9a-f]{16}", lively(waiting_for=["member-0"]))
    asked = list[httpx.Response]()

    def first(answer: httpx.Response) -> httpx.Response:
        asked.append(answer)
        return asked_anew()(asked[0])

    consortium.shows(REQUESTS, first)
    return consortium.member("member-0").contribute(round_id)


def erasing(consortium: Consortium) -> Flow[Any]:
    """Be in the erasing state in one answer, and not in the other."""
    round_id = consortium.open_round(consortium.enrol())
    consortium.shows(REQUESTS, asked_anew("erasing", again=False))
    return consortium.member("member-0").contribute(round_id)


def idle(consortium: Consortium) -> Flow[Any]:
    consortium.shows(".*/runs", rewritten(lambda shown: {**shown, "revision": next(LIVELY)}))
    agent = consortium.member("member-0").make_agent(consortium.records("member-0"))
    return consortium.open["member-0"].next_result(agent)


@pytest.mark.parametrize("flow", [enrolling, waiting, asked_again, erasing, idle])
def test_news_without_end_is_followed_once_a_second(
    consortium: Consortium, flow: Callable[[Consortium], Flow[Any]]
) -> None:
    consortium.holds = False
    steps = consortium.steps(flow(consortium))
    begun_s, seen = consortium.clock(), 0
    while seen < LOOKS:
        state, effect = next(steps)
        polls = isinstance(effect, Request) and ("after" in effect.params or "requests" in effect.path)
        seen += state == "before" and polls
    steps.close()
    assert consortium.clock() - begun_s >= LOOKS - AT_ONCE


def test_what_a_member_is_asked_next_is_followed_at_once(consortium: Consortium) -> None:
    round_id, before = consortium.open_round(consortium.enrol()), len(consortium.clock.pauses)
    consortium.together(consortium.contributions(round_id))
    assert consortium.clock.pauses[before:] == []
