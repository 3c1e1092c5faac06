"""Answers of a hostile coordinator, for `Consortium.shows`."""

import json
from collections.abc import Callable
from typing import Any

import httpx

from service.http.problems import problem_of
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import Message, Roster, Study

Answer = Callable[[httpx.Response], httpx.Response]


def message(shown: Message) -> Answer:
    """Replace the answer by a message."""
    return lambda _: httpx.Response(200, content=shown.to_bytes())


def changed(**changes: Any) -> Answer:
    """Change values of an answer's JSON document; other answers stay unchanged."""
    return rewritten(lambda document: {**document, **changes})


def rewritten(change: Callable[[Any], Any]) -> Answer:
    """Rewrite an answer's JSON document with `change`; other answers stay unchanged."""

    def other(answer: httpx.Response) -> httpx.Response:
        if answer.headers.get("content-type") != "application/json":
            return answer
        headers = {name: value for name, value in answer.headers.items() if name != "content-length"}
        return httpx.Response(200, headers=headers, content=json.dumps(change(answer.json())))

    return other


def invited(roster: Roster | None = None, study: Study | None = None, **changes: Any) -> Answer:
    """Replace the roster or study in an invitation, or change values of its cohort."""
    messages = {"roster": roster, "study": study}
    named = {name: each.to_bytes().hex() for name, each in messages.items() if each is not None}
    return rewritten(lambda shown: {**shown, **named, "cohort": {**shown["cohort"], **changes}})


def refused(cause: Cause, *parties: str) -> Answer:
    """Replace the answer by a refusal."""
    problem = problem_of(PeerFault(cause, parties=parties))
    return lambda _: httpx.Response(problem.status, content=problem.model_dump_json())
