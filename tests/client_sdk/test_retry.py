"""Retries, on a simulated clock."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest

from client_sdk.effects import Flow, Pause, Request, Response, Unreached
from client_sdk.environment import Environment
from client_sdk.errors import PeerFault, UnexpectedAnswer, Unreachable, fault_of
from client_sdk.progress import Progress, Reporter, Step
from client_sdk.retry import RetryingClient
from service.http.problems import problem_of
from tests.support.refusals import refused
from tests.support.serving import Still
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault as Fault


def refusal(fault: Fault, **changes: str | int) -> Response:
    document = problem_of(fault).model_copy(update=changes)
    return Response(document.status, {}, document.model_dump_json().encode())


REQUEST = Request("PUT", "/v1/thing", b"body")
OK = Response(200, {}, b"fine")
LOST = Unreached("ConnectError: refused", sent=False)


def exchange(
    answers: Sequence[Response | Unreached],
    *,
    patience_s: float = 100.0,
    jitter: float = 1.0,
    slow_s: float = 0.0,
    request: Request = REQUEST,
) -> tuple[Response, list[float], list[Progress]]:
    clock, events = Still(), list[Progress]()
    caller = RetryingClient(
        patience_s,
        Environment(now_s=clock, monotonic_s=clock, jitter=lambda: jitter),
        Reporter(events.append),
    )
    supply: Iterator[Response | Unreached] = iter(answers)
    flow = caller.send_with_retries(request)
    effect = next(flow)
    try:
        while True:
            if isinstance(effect, Pause):
                clock.sleep(effect.seconds)
                effect = flow.send(None)
            else:
                assert effect == request
                clock.ahead_s += slow_s
                effect = flow.send(next(supply))
    except StopIteration as end:
        return end.value, clock.pauses, events


A_PAGE = {"content-type": "text/html; charset=utf-8"}


@pytest.mark.parametrize(
    "failure",
    [
        LOST,
        Response(500, A_PAGE, b"<html>"),
        *(refusal(Fault(Cause.UNAVAILABLE), status=status) for status in (400, 500)),
        *(Response(status) for status in (408, 429, 500, 502, 503, 504)),
        *(
            refusal(Fault(Cause.CONFLICT), status=status, cause="brand-new")
            for status in (408, 429, 502, 503, 504)
        ),
    ],
)
def test_backoff_doubles_to_its_limit(failure: Response | Unreached) -> None:
    answer, pauses, events = exchange([failure] * 9 + [OK], patience_s=1000)
    assert answer is OK
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert len(events) == 9
    assert events[0].step is Step.RETRYING
    assert "try 2 in 0.5 s" in events[0].detail


def test_a_request_that_a_proxy_sent_twice_is_signed_anew() -> None:
    replayed, other = (refusal(PeerFault(cause)) for cause in (Cause.REQUEST_REPLAYED, Cause.CONFLICT))
    answer, pauses, [event] = exchange([replayed, OK])
    assert (answer, pauses) == (OK, [0.5])
    assert Cause.REQUEST_REPLAYED in event.detail
    with refused("conflict"):
        exchange([other, OK])


@pytest.mark.parametrize(
    ("failures", "times"),
    [([Response(413)], 1), ([Response(413), Response(413)], 1), ([Response(503)], 0), ([LOST], 0)],
)
def test_a_body_that_a_proxy_finds_too_large_is_reported_once(
    failures: list[Response | Unreached], times: int
) -> None:
    told = list[tuple[int, str]]()

    def report(size: int, why: str) -> Flow[None]:
        told.append((size, why))
        yield Pause(0.0)

    request = replace(REQUEST, on_too_large=report)
    assert exchange([*failures, OK], request=request)[0] == OK
    assert [(size, "413" in why) for size, why in told] == [(len(REQUEST.body), True)] * times


@pytest.mark.parametrize(
    ("value", "pause"),
    [
        ("7", 7.0),
        ("0", 0.5),
        ("soon", 0.5),
        ("-3", 0.5),
        ("²", 0.5),
        ("Mon, 01 Jan 99999999999999999999 00:00:00 GMT", 0.5),
        (format_datetime(datetime.fromtimestamp(1_000_020, UTC), usegmt=True), 20.0),
        (format_datetime(datetime.fromtimestamp(999_000, UTC), usegmt=True), 0.5),
        ("9" * 400, 999_999_999.0),
    ],
)
def test_retry_after_is_honoured(value: str, pause: float) -> None:
    assert exchange([Response(503, {"retry-after": value}), OK], patience_s=math.inf)[1] == [pause]


def test_patience_is_spent_from_the_first_failure_on_and_says_what_was_tried() -> None:
    with pytest.raises(Unreachable, match=r"PUT /v1/thing .*\b5 .*\b4 s.*ConnectError"):
        exchange([LOST] * 99, patience_s=4.0)
    for failures, slow_s in (([LOST], 60.0), ([LOST, LOST], 3.0)):
        assert exchange([*failures, OK], patience_s=5.0, slow_s=slow_s)[0] is OK
    with pytest.raises(Unreachable, match=r"\b1\b"):
        exchange([LOST], patience_s=0.0)


CREATES = Request("POST", "/v1/things", b"body", shown_in="the list of things")


@pytest.mark.parametrize(("spent_s", "reports"), [(20.0, 0), (2.0, 1)])
def test_a_poll_that_ends_early_for_what_is_due_is_no_failure_of_the_network(
    spent_s: float, reports: int
) -> None:
    clock, events, due_s = Still(), list[Progress](), iter([20.0, math.inf, math.inf, math.inf])
    environment = Environment(now_s=clock, monotonic_s=clock)
    caller = RetryingClient(100.0, environment, Reporter(events.append), on_time=lambda: next(due_s))
    flow = caller.send_with_retries(REQUEST)
    assert next(flow) == replace(REQUEST, limit_s=20.0)
    clock.ahead_s += spent_s
    assert isinstance(flow.send(Unreached("ReadTimeout: timed out")), Pause)
    assert flow.send(None) == REQUEST
    with pytest.raises(StopIteration) as end:
        flow.send(OK)
    assert end.value.value == OK
    assert len(events) == reports


def test_what_creates_something_is_tried_again_where_it_surely_was_not_taken() -> None:
    assert exchange([LOST, Response(429), OK], request=CREATES)[:2] == (OK, [0.5, 1.0])


@pytest.mark.parametrize(
    "answer",
    [
        Unreached("ReadTimeout"),
        *(Response(status) for status in (408, 500, 502, 503, 504)),
        refusal(PeerFault(Cause.REQUEST_REPLAYED)),
    ],
)
def test_what_creates_something_is_not_asked_twice(answer: Response | Unreached) -> None:
    with pytest.raises(Unreachable, match="list of things"):
        exchange([LOST, answer, OK], request=CREATES)


@pytest.mark.parametrize("cause", [Cause.CARD_CONFLICT, Cause.STORAGE_DAMAGED])
def test_a_refusal_is_not_tried_again(cause: Cause) -> None:
    with refused(cause, "m") as caught:
        exchange([refusal(Fault(cause, "another", ["m"]))])
    assert caught.value.detail == "another"


def test_an_unknown_cause_is_an_answer_that_this_release_does_not_know() -> None:
    with pytest.raises(UnexpectedAnswer, match="'brand-new'"):
        exchange([refusal(Fault(Cause.CONFLICT, "words"), cause="brand-new")])


def test_the_coordinator_cannot_claim_what_only_a_member_finds_out() -> None:
    claimed = problem_of(PeerFault(Cause.STATE_RESTORED, "send your key", ["member-0"]))
    fault = fault_of(claimed)
    assert (fault.cause, fault.parties) == (Cause.MALFORMED, ("coordinator",))
    assert "send your key" not in str(fault)


@pytest.mark.parametrize("status", [199, 300, 301, 400, 404, 499])
def test_a_refusal_without_a_problem_document(status: int) -> None:
    with pytest.raises(UnexpectedAnswer, match=f"HTTP {status}"):
        exchange([Response(status, {}, b"<html>")])


def test_a_page_that_was_not_found_is_at_a_wrong_address() -> None:
    with pytest.raises(UnexpectedAnswer, match="HTTP 404"):
        exchange([Response(404, A_PAGE, b"<html>")])


@pytest.mark.parametrize(
    ("answer", "help_"),
    [
        (Response(200, A_PAGE, b"<html>"), "log in"),
        (Response(302, {"location": "http://login.example.org"}), "log in"),
        (Response(511, A_PAGE, b"<html>"), "log in"),
        (Response(403, A_PAGE, b"<html>"), "firewall"),
        (Response(407), "HTTPS_PROXY"),
        (Response(303, {"location": "http://login.example.org"}), "log in"),
        (Response(307, {"location": "http://login.example.org"}), "log in"),
        (Response(451, A_PAGE, b"<html>"), "firewall"),
        (Response(413, A_PAGE, b"<html>"), r"\b4 bytes.*64 MiB.*client_max_body_size"),
    ],
)
def test_what_a_network_or_proxy_answers_is_waited_for_and_named(answer: Response, help_: str) -> None:
    outcome, _, events = exchange([answer, answer, OK])
    assert outcome is OK
    assert all(re.search(rf"HTTP {answer.status}, .*{help_}", event.detail) for event in events)
    with pytest.raises(Unreachable, match=help_):
        exchange([answer] * 99)
    with pytest.raises(Unreachable, match="list of things"):
        exchange([answer], request=CREATES)


@pytest.mark.parametrize("cause", [Cause.FORBIDDEN, Cause.OVERSIZED])
def test_what_the_coordinator_refuses_itself_is_not_waited_for(cause: Cause) -> None:
    with refused(cause):
        exchange([refusal(Fault(cause))])


def test_every_answer_below_300_is_accepted() -> None:
    assert exchange([Response(299)]) == (Response(299), [], [])


def test_a_redirect_is_named() -> None:
    moved = Response(301, {"location": "https://sum.example.org/v1?token=secret"}, b"")
    with pytest.raises(UnexpectedAnswer, match=r"HTTP 301.*https://sum\.example\.org/v1:"):
        exchange([moved])
