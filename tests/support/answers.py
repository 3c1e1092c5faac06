"""What a hostile coordinator shows instead of an answer (`Consortium.shows`)."""

import json
from collections.abc import Callable
from typing import Any

import httpx

from service.problems import problem_of
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import Message, Roster, Study

Answer = Callable[[httpx.Response], httpx.Response]


def message(shown: Message) -> Answer:
    """This message instead of the answer."""
    return lambda _: httpx.Response(200, content=shown.to_bytes())


def changed(**changes: Any) -> Answer:
    """The same document with other values; a message as it is."""
    return rewritten(lambda document: {**document, **changes})


def rewritten(change: Callable[[Any], Any]) -> Answer:
    """The JSON document as `change` rewrites it; a message as it is."""

    def other(answer: httpx.Response) -> httpx.Response:
        if answer.headers.get("content-type") != "application/json":
            return answer
        headers = {name: value for name, value in answer.headers.items() if name != "content-length"}
        return httpx.Response(200, headers=headers, content=json.dumps(change(answer.json())))

    return other


def invited(roster: Roster | None = None, study: Study | None = None, **changes: Any) -> Answer:
    """The same invitation to a cohort with another roster or study, or with other values of the cohort."""
    messages = {"roster": roster, "study": study}
    named = {name: each.to_bytes().hex() for name, each in messages.items() if each is not None}
    return rewritten(lambda shown: {**shown, **named, "cohort": {**shown["cohort"], **changes}})


def refused(cause: Cause) -> Answer:
    """A refusal instead of the answer."""
    problem = problem_of(PeerFault(cause))
    return lambda _: httpx.Response(problem.status, content=problem.model_dump_json())
