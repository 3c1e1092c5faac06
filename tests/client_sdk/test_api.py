"""Answers of the coordinator that the client refuses."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from client_sdk.api import Asked, CoordinatorApi
from client_sdk.effects import Flow, Request, Response
from client_sdk.environment import Environment
from client_sdk.errors import PeerFault, Unreachable
from client_sdk.operator import Operator
from client_sdk.progress import Reporter
from client_sdk.retry import RetryingClient
from client_sdk.transport import BlockingDriver
from tests.support.refusals import refused
from tests.support.serving import Still
from veilsum.protocol.causes import Cause
from veilsum.protocol.rest import (
    MAX_ANSWER_BYTES,
    MAX_LISTING_BYTES,
    STATE_HEADER,
    VERSION_HEADER,
    Scope,
    TokenRequest,
)

API = CoordinatorApi(RetryingClient(0.0, Environment(), Reporter(None)))


def answered(flow: Flow[Any], response: Response) -> tuple[Request, Any]:
    request = next(flow)
    assert isinstance(request, Request)
    try:
        flow.send(response)
    except StopIteration as end:
        return request, end.value
    raise AssertionError


def test_nothing_to_answer() -> None:
    headers = {VERSION_HEADER: "7", STATE_HEADER: "checking"}
    response = Response(204, headers)
    assert repr(response) == "<Response 204 0 B>"
    request, outcome = answered(API.fetch_request("r", "m", 6), response)
    assert outcome == Asked(None, 7, "checking", 0)
    assert (request.params, request.wait_s) == ({"after": "6", "wait_s": "30"}, 30.0)


@pytest.mark.parametrize("version", [None, "", "-1", "x", "²"])
def test_a_request_without_a_version(version: str | None) -> None:
    headers = {} if version is None else {VERSION_HEADER: version}
    with refused(Cause.MALFORMED, "coordinator"):
        answered(API.fetch_request("r", "m"), Response(204, headers))


def test_a_version_has_at_most_18_digits() -> None:
    _, outcome = answered(API.fetch_request("r", "m"), Response(204, {VERSION_HEADER: "9" * 5000}))
    assert outcome.version == 10**18 - 1


@pytest.mark.parametrize(
    ("body", "where"),
    [(b"", "the body"), (b"{", "the body"), (b"[]", "the body"), (b'{"round": 1}', "round")],
)
def test_a_body_that_is_no_model_names_the_field(body: bytes, where: str) -> None:
    with refused(Cause.MALFORMED, "coordinator"):
        answered(API.fetch_round("r"), Response(200, {}, body))


@pytest.mark.parametrize(
    ("ask", "most"),
    [
        (lambda api: api.fetch_studies("f"), MAX_ANSWER_BYTES),
        (lambda api: api.fetch_round("r"), MAX_LISTING_BYTES),
    ],
)
@pytest.mark.parametrize("body", [b"[" + b"0," * 200_000 + b"0]", b" " * (MAX_LISTING_BYTES + 1)])
def test_json_beyond_its_limits_is_not_parsed(
    monkeypatch: pytest.MonkeyPatch, ask: Callable[[CoordinatorApi], Flow[Any]], most: int, body: bytes
) -> None:
    monkeypatch.setattr(BaseModel, "model_validate_json", None)
    flow = ask(API)
    request = next(flow)
    assert isinstance(request, Request)
    assert request.limit_bytes == most
    with refused(Cause.OVERSIZED, "coordinator"):
        flow.send(Response(200, {}, body))


@pytest.mark.parametrize("body", [b"", b"\x01", b"\x01\x04", b"\x02\x04", b"\x01\xff"])
def test_a_message_that_does_not_parse(body: bytes) -> None:
    with pytest.raises(PeerFault):
        answered(API.fetch_request("r", "m"), Response(200, {VERSION_HEADER: "1"}, body))


# What an operator's requests are asked again for, and what not


URL, NAME, ROUND = "https://sum.example.org", "ab" * 32, "ab" * 8


def asked(ask: Callable[[Operator], object]) -> tuple[int, str]:
    """Return how often a request without an answer from behind a proxy is sent, and the final error."""
    seen, clock = list[httpx.Request](), Still()

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(504)

    driver = BlockingDriver(URL, transport=httpx.MockTransport(handler), sleep=clock.sleep)
    environment = Environment(now_s=clock, monotonic_s=clock, jitter=lambda: 1.0)
    with (
        Operator(URL, "token", environment=environment, driver=driver) as operator,
        pytest.raises(Unreachable) as caught,
    ):
        ask(operator)
    return len(seen), str(caught.value)


@pytest.mark.parametrize(
    ("ask", "where"),
    [
        (
            lambda it: it.new_token(TokenRequest(name="night", scopes=frozenset({Scope.ROUNDS}))),
            "Operator.tokens",
        ),
        (lambda it: it.open_cohort(NAME, NAME, "p1"), "Operator.federation"),
        (lambda it: it.open_round(NAME), "Operator.federation"),
    ],
)
def test_what_creates_something_is_sent_once(ask: Callable[[Operator], object], where: str) -> None:
    times, said = asked(ask)
    assert times == 1
    assert where in said
