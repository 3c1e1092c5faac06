"""What an operator's requests are asked again for, and what not."""

from collections.abc import Callable

import httpx
import pytest

from client_sdk.effects import Surroundings
from client_sdk.errors import Unreachable
from client_sdk.operator import Operator
from client_sdk.transport import BlockingDriver
from tests.support.federation import Clock
from veilsum.protocol.rest import Scope, TokenRequest

URL, NAME, ROUND = "https://sum.example.org", "ab" * 32, "ab" * 8


def asked(ask: Callable[[Operator], object]) -> tuple[int, str]:
    """How often a request is sent that gets no word from behind a proxy, and what is said in the end."""
    seen, clock = list[httpx.Request](), Clock()

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(504)

    driver = BlockingDriver(URL, transport=httpx.MockTransport(handler), sleep=clock.sleep)
    surroundings = Surroundings(now_s=clock, monotonic_s=clock, jitter=lambda: 1.0)
    with (
        Operator(URL, "token", surroundings=surroundings, driver=driver) as operator,
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
    assert "may have been carried out" in said
    assert where in said
