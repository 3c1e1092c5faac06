"""What is refused of the coordinator's answers."""

from typing import Any

import pytest

from client_sdk.api import Asked, CoordinatorApi
from client_sdk.effects import Flow, Request, Response, Surroundings
from client_sdk.errors import PeerFault
from client_sdk.progress import Reporter
from client_sdk.retry import RetryingClient
from veilsum.protocol.causes import Cause
from veilsum.protocol.rest import STATE_HEADER, VERSION_HEADER

API = CoordinatorApi(RetryingClient(0.0, Surroundings(), Reporter(None)))


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
    request, outcome = answered(API.request("r", "m", 6), Response(204, headers))
    assert outcome == Asked(None, 7, "checking", 0)
    assert (request.params, request.wait_s) == ({"after": "6", "wait_s": "30"}, 30.0)


@pytest.mark.parametrize("version", [None, "", "-1", "x", "²"])
def test_a_request_without_a_version(version: str | None) -> None:
    headers = {} if version is None else {VERSION_HEADER: version}
    with pytest.raises(PeerFault, match="veilsum-version") as caught:
        answered(API.request("r", "m"), Response(204, headers))
    assert caught.value.cause is Cause.MALFORMED


@pytest.mark.parametrize(
    ("body", "where"),
    [(b"", "the body"), (b"{", "the body"), (b"[]", "the body"), (b'{"round": 1}', "round")],
)
def test_a_body_that_is_no_model_names_the_field(body: bytes, where: str) -> None:
    with pytest.raises(PeerFault, match=f"RoundView: {where}: ") as caught:
        answered(API.round("r"), Response(200, {}, body))
    assert (caught.value.cause, caught.value.parties) == (Cause.MALFORMED, ("coordinator",))


@pytest.mark.parametrize("body", [b"", b"\x01", b"\x01\x04", b"\x02\x04", b"\x01\xff"])
def test_a_message_that_does_not_parse(body: bytes) -> None:
    with pytest.raises(PeerFault):
        answered(API.request("r", "m"), Response(200, {VERSION_HEADER: "1"}, body))
