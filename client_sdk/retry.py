"""Retry requests until the coordinator answers or time is up, and parse refusals.

Every request of the protocol may be repeated: its content is stored before it is sent, and never changes. Operators' requests that create
something at each call are repeated only if the coordinator certainly has not carried them out.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from email.utils import parsedate_to_datetime

from pydantic import ValidationError

from client_sdk.effects import Flow, Pause, Request, Response, Unreached
from client_sdk.environment import Environment
from client_sdk.errors import UnexpectedAnswer, Unreachable, fault_of
from client_sdk.progress import Progress, Reporter, Step
from client_sdk.signing import Signer, Token
from veilsum.protocol.causes import Cause
from veilsum.protocol.rest import MAX_MESSAGE_BYTES, Problem
from veilsum.system.intervals import RETRY_FIRST_S, RETRY_LONGEST_S

RETRIED_STATUSES = frozenset({408, 429, 502, 503, 504})
PORTAL_STATUSES = frozenset({200, 302, 303, 307, 511})
"""With which a network shows its own page, such as a login, in place of any other."""
BLOCKED_STATUSES = frozenset({403, 407, 413, 451})
"""With which a proxy or firewall refuses a request."""
_TIMER_SLACK_S = 0.01
"""By how much a timer may end early."""


class RetryingClient:
    """Sends requests, with retries.

    Args:
        patience_s: how long to retry one request, counted from its first failure.
        environment: clocks and jitter.
        report: called with every retry.
        signer: signs every request, or adds an operator's token; None for public resources only.
        on_time: called before and after each request, with what must not wait for an answer. Returns in how many seconds it is due
            again: no request takes longer.
    """

    def __init__(
        self,
        patience_s: float,
        environment: Environment,
        report: Reporter,
        signer: Signer | Token | None = None,
        on_time: Callable[[], float] = lambda: math.inf,
    ) -> None:
        self._patience_s, self._environment, self._report = patience_s, environment, report
        self._signer, self._on_time = signer, on_time

    def send_with_retries(self, request: Request) -> Flow[Response]:
        """Send a request until it is answered.

        Returns:
            An answer below 400.

        Raises:
            Unreachable: connections failed, the coordinator was unavailable, or a network or proxy answered in its place, for `patience_s`.
            PeerFault: the coordinator refused and said why.
            UnexpectedAnswer: this release cannot read its refusal.
        """
        began_s, tries = self._environment.monotonic_s(), 0
        request = replace(request, signer=self._signer)
        while True:
            limit_s, asked_s = self._on_time(), self._environment.monotonic_s()
            answer: Response | Unreached = yield replace(request, limit_s=limit_s)
            was_cut = self._environment.monotonic_s() - asked_s > limit_s - _TIMER_SLACK_S
            due_s = self._on_time()
            tries += 1
            if isinstance(answer, Response) and not _should_retry(answer):
                return _accept_answer(request, answer)
            if request.shown_in and not _was_refused(answer):
                raise Unreachable(
                    f"{request.method} {request.path} failed ({_explain_failure(request, answer)}), but may have been carried out. "
                    f"Check {request.shown_in} before you run the same command again"
                )
            spent_s = self._environment.monotonic_s() - began_s
            if tries == 1:
                # The first wait may have been a long poll: it counts from when it failed.
                began_s, spent_s = began_s + spent_s, 0.0
            left_s = self._patience_s - spent_s
            if left_s <= 0:
                raise Unreachable(
                    f"{request.method} {request.path} failed {tries} times in {spent_s:.0f} s, last: "
                    f"{_explain_failure(request, answer)}. Nothing is lost: check the address and the network, then run the same "
                    "command again"
                )
            pause_s = min(self._pause_s(tries, answer), left_s, due_s)
            if not was_cut:  # by what was due, not by the network
                self._report(
                    Progress(
                        Step.RETRYING,
                        detail=f"{_explain_failure(request, answer)}; try {tries + 1} in {pause_s:.1f} s, for {left_s:.0f} s more",
                    )
                )
            refused_size = isinstance(answer, Response) and answer.status == 413
            if tries == 1 and request.on_too_large is not None and refused_size:
                yield from request.on_too_large(len(request.body), _explain_failure(request, answer))
            yield Pause(pause_s)

    def _pause_s(self, tries: int, answer: Response | Unreached) -> float:
        longest_s = min(RETRY_FIRST_S * 2.0 ** min(tries - 1, 10), RETRY_LONGEST_S)
        backoff_s = longest_s * (0.5 + 0.5 * self._environment.jitter())
        asked = answer.headers.get("retry-after", "") if isinstance(answer, Response) else ""
        return max(backoff_s, self._retry_after_s(asked))

    def _retry_after_s(self, value: str) -> float:
        """Return the seconds of a Retry-After header (RFC 9110, 10.2.3); 0 if it can't be parsed."""
        if value.isascii() and value.isdecimal():
            return float(value[:9])
        try:
            return parsedate_to_datetime(value).timestamp() - self._environment.now_s()
        except (ValueError, OverflowError):  # a year of twenty digits overflows
            return 0.0


def _should_retry(answer: Response) -> bool:
    """Whether to retry. That includes a replay refusal: a proxy may have sent the request twice, and a new signature helps."""
    if answer.status in RETRIED_STATUSES:
        return True
    problem = _parse_problem(answer) if answer.status >= 400 else None
    if problem is None:  # a proxy's own error, or a page of the network; a wrong address is not found
        return answer.status >= 500 or answer.status in BLOCKED_STATUSES or _is_portal(answer)
    return problem.cause in {Cause.REQUEST_REPLAYED, Cause.UNAVAILABLE}


def _is_portal(answer: Response) -> bool:
    return answer.status in PORTAL_STATUSES and (answer.status != 200 or _is_page(answer))


def _is_page(answer: Response) -> bool:
    return answer.headers.get("content-type", "").startswith("text/html")


def _was_refused(answer: Response | Unreached) -> bool:
    """Whether the coordinator certainly has not carried it out."""
    return not answer.sent if isinstance(answer, Unreached) else answer.status == 429


def _accept_answer(request: Request, answer: Response) -> Response:
    page = _is_page(answer)
    if 200 <= answer.status < 300 and not page:
        return answer
    problem = _parse_problem(answer)
    if problem is None:
        how = " with a web page" if page else " without a problem document"
        if moved := answer.headers.get("location", "").partition("?")[0]:
            how = f", a redirect to {moved[:200]}"
        raise UnexpectedAnswer(
            f"{request.method} {request.path} was answered by HTTP {answer.status}{how}: "
            "is this the coordinator's address, or does a proxy answer for it?"
        )
    raise fault_of(problem)


def _parse_problem(answer: Response) -> Problem | None:
    try:
        return Problem.model_validate_json(answer.body)
    except ValidationError:
        return None


def _explain_failure(request: Request, answer: Response | Unreached) -> str:
    """Say why a request failed that is tried again, and what may help."""
    if isinstance(answer, Unreached):
        return answer.reason
    if problem := _parse_problem(answer):
        return f"HTTP {answer.status}, {problem.cause}: {problem.detail}"
    if _is_portal(answer):
        return f"HTTP {answer.status}, with this network's own page instead of the coordinator's answer: log in to the network with a browser"
    helps = {
        403: "a proxy or firewall refuses the request: have it allow the coordinator's address",
        407: "a proxy asks for a password: write it into the proxy's address, HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT",
        413: f"a proxy refuses a body of {len(request.body):,} bytes: have its limit raised to {MAX_MESSAGE_BYTES >> 20} MiB (nginx: client_max_body_size)",
        451: "a proxy or firewall refuses the request: have it allow the coordinator's address",
    }.get(answer.status)
    return f"HTTP {answer.status}" + (f", {helps}" if helps else "")
