"""The parties of an attempt with mask helpers, brought to where its log stands: from inputs and messages alone."""

from functools import cache
from typing import Any

import numpy as np

from protocol.helpers.attempt import HelperAttempt
from protocol.helpers.client import Client
from protocol.helpers.coordinator import Collecting, Enrolling, HelperWindows
from protocol.helpers.helper import HelperPhase, Standing, Summing
from protocol.helpers.messages import HelperCard, HelperOpening, HelperSums, HelperUpload, parse
from protocol.identity import SigningKey
from protocol.messages import Message, Roster
from tests.vectors import helping
from tests.vectors.stage import Script

Json = dict[str, Any]


def roster_of(document: Json) -> Roster:
    return Roster.from_bytes(bytes.fromhex(document["roster"]))


def attempt_of(document: Json, attempt: int) -> HelperAttempt:
    opening = HelperOpening.from_bytes(bytes.fromhex(document["attempts"][attempt]["opening"]))
    return HelperAttempt(roster_of(document), opening)


def key_of(document: Json, member: str) -> SigningKey:
    return SigningKey(bytes.fromhex(document["identities"][member]))


def uploaded(document: Json, attempt: int, client: str) -> tuple[HelperUpload, list[str]]:
    """What a client says, and its chunks: from its vector and what it drew."""
    found, given = attempt_of(document, attempt), document["attempts"][attempt]["clients"][client]
    roster, now_s = found.roster, document["attempts"][attempt]["now_s"]
    drawn = Script(*map(bytes.fromhex, [*given["seeds"], given["sender_private"]]))
    sealing = Client.start(client, roster.federation, roster).seal(found, now_s, drawn)
    vector, step = np.array(given["vector"], np.int64), found.terms.chunk_elements
    chunks = [bytes(sealing.chunk(vector[i * step : (i + 1) * step])).hex() for i in range(found.chunks)]
    tags = {"lineage": bytes.fromhex(given["lineage"]), "records_tag": bytes.fromhex(given["records"])}
    return sealing.finish(key_of(document, client), **tags, records=1), chunks


def helped(document: Json, helper: str) -> tuple[list[list[str]], list[Json]]:
    """What a helper says in each attempt, as it hears the messages of the log, and the sums that it returns."""
    key, roster = key_of(document, helper), roster_of(document)
    phase: HelperPhase = Standing.start(helper, roster.federation, roster)
    said, sums = list[list[str]](), list[Json]()
    for attempt in document["attempts"]:
        answers, added = list[Message](), Json()
        for source, to, index in attempt["log"]:
            if (
                source == helper
                and isinstance(phase, Standing)
                and helper in attempt["box_privates"]
                and not answers
            ):
                private = bytes.fromhex(attempt["box_privates"][helper])
                phase, cards = phase.enrol(key, expires_s=attempt["expires_s"], random_bytes=Script(private))
                answers += cards
            if to != helper:
                continue
            message = parse(bytes.fromhex(document["messages"][index]))
            phase, replies = phase.receive(message, key, attempt["now_s"])
            answers += replies
            if isinstance(phase, Summing):
                adding = phase.adding()
                for chunk in adding.chunks():
                    added.setdefault(str(chunk.seed), []).append(bytes(chunk.packed).hex())
                phase, replies = phase.summed(adding.finish(key))
                answers += replies
        said.append([answer.to_bytes().hex() for answer in answers])
        sums.append(added)
    return said, sums


def opened(document: Json, attempt: int) -> HelperAttempt:
    """The opening that a coordinator signs over the cards that came."""
    given, now_s = document["attempts"][attempt], document["attempts"][attempt]["now_s"]
    history = tuple(coordinator_at(each).closing.ended for each in range(attempt))
    enrolling = Enrolling.after(roster_of(document), history, document["cap"])
    for source, _, index in given["log"]:
        message = parse(bytes.fromhex(document["messages"][index]))
        if isinstance(message, HelperCard) and source != "coordinator":
            enrolling = enrolling.receive(message, now_s)
    key = SigningKey(bytes.fromhex(document["coordinator"]))
    return enrolling.attempt(attempt_of(document, attempt).terms, key, now_s)


def first(attempt: int, form: type[Message]) -> int:
    """Where in an attempt's log this form is said first."""
    document = helping.played()[1]
    header = bytes((form.version, form.kind)).hex()
    log = document["attempts"][attempt]["log"]
    return next(at for at, (_, _, index) in enumerate(log) if document["messages"][index].startswith(header))


def true_sums(attempt: int) -> list[HelperSums]:
    """What each helper with a card returns if it adds up truly."""
    document = helping.played()[1]
    helpers = document["attempts"][attempt]["box_privates"]
    texts = [text for helper in helpers for text in helped(document, helper)[0][attempt]]
    header = bytes((HelperSums.version, HelperSums.kind)).hex()
    once = dict.fromkeys(
        text for text in texts if text.startswith(header)
    )  # an end told again is answered again
    return [HelperSums.from_bytes(bytes.fromhex(text)) for text in once]


@cache
def coordinator_at(attempt: int, at: int | None = None) -> Any:
    """The coordinator as it was before that entry of the log; at its end without one."""
    document = helping.played()[1]
    given = document["attempts"][attempt]
    history = tuple(coordinator_at(each).closing.ended for each in range(attempt))
    collecting = Collecting.begin(attempt_of(document, attempt), HelperWindows(), given["now_s"], history)
    phase: Any = collecting
    whole: dict[str, HelperUpload] = {}
    for source, _, index in given["log"][:at]:
        message = parse(bytes.fromhex(document["messages"][index]))
        if source == "coordinator" or isinstance(message, HelperCard):
            continue
        if isinstance(message, HelperUpload):
            collecting.check_upload(message)
            if source not in given["partial"]:
                whole[source] = message
            continue
        if phase is collecting:
            phase = collecting.close(whole.values(), given["now_s"])
        phase = phase.receive(message, given["now_s"])
    return phase
