"""Plays over a member's ledger with the SDK: invitations and closings as they are sent, answered without a network.

A play names attempts and members; the messages behind them are real and signed, so that every step takes the way that it takes in a client.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from client_sdk.api import Invitation
from client_sdk.effects import Flow, Request, Response
from client_sdk.enrolment import send_card
from client_sdk.environment import Environment
from client_sdk.errors import Declined, Misuse
from client_sdk.identity import Identity
from client_sdk.member import Conversations
from client_sdk.policy import Policy
from client_sdk.records import Records
from client_sdk.reservations import Run, State
from client_sdk.upload import own_vector
from service.http.problems import problem_of
from tests.support.simulator import simulated_roster
from veilsum.protocol import rest
from veilsum.protocol.attempt import Attempt, Closing
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Enrolling, PairingWindow
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.member import Enrolled
from veilsum.protocol.messages import (
    NO_CONTEXT,
    NO_REASON,
    NOTHING_REVEALED,
    Certificate,
    Erased,
    Erasure,
    Lost,
    Opening,
    Roster,
    Study,
    Survivor,
    Terms,
    Vote,
    survivors_hash,
    void_hash,
)
from veilsum.protocol.messages.opening import LOST_REASON
from veilsum.protocol.study import Content, read_content

Json = Mapping[str, Any]
ADMIN, COORDINATOR = SigningKey(b"\x0a" * 32), SigningKey(b"\x0c" * 32)
MEMBERS = tuple(f"m-{index}" for index in range(5))
ME = MEMBERS[0]
OTHERS = {member: SigningKey(member.encode() * 8 + bytes(8)) for member in MEMBERS[1:]}
NOW_S, LIFETIME_S = 1_000_000, 1_000
ERASED_REASON, REHEARSAL = "erased", "rehearsal-"
DIGEST = b"\x0d" * 32
"""In the place of an upload's."""


def play_ledger(case: Json) -> dict[str, Any]:
    """Play a case over an empty ledger; return what each step did, and the cause if the last one was refused."""
    with TemporaryDirectory() as place, closing(LedgerPlayer(Path(place), case)) as player:
        steps: list[Json] = [{**player.take(step), **player.shown()} for step in case["steps"]]
    return {"steps": steps} | {name: steps[-1][name] for name in ("cause", "parties") if name in steps[-1]}


def records_of(data: Json) -> Records:
    """Return a case's records."""
    return Records(np.array(data["rows"], np.float64), list(data["labels"]), data["ids"])


def refusal(act: Callable[[], Json]) -> Json:
    """Return what an act gives, or why it is refused."""
    try:
        return act()
    except PeerFault as fault:
        return {"cause": fault.cause.value, "parties": list(fault.parties)}
    except (Declined, Misuse):
        return {"yes": False}


def drive(flow: Flow[Any], answer: Callable[[Request], Response]) -> None:
    """Run a member's flow to its end, with these answers of a coordinator."""
    outcome: Any = None
    with suppress(StopIteration):
        while True:
            effect = flow.send(outcome)
            outcome = answer(effect) if isinstance(effect, Request) else None


def hidden(cause: Cause) -> Response:
    """Return a coordinator's refusal."""
    problem = problem_of(PeerFault(cause))
    return Response(problem.status, {}, problem.model_dump_json().encode())


class LedgerPlayer:
    """One member and all that it is shown."""

    def __init__(self, folder: Path, case: Json, owner: Json | None = None) -> None:
        self.case, self.now_s = case, float(NOW_S)
        self.studies = {name: _sign_study(text) for name, text in case["studies"].items()}
        contents = {name: read_content(study.content) for name, study in self.studies.items()}
        self.contents: dict[str, Content] = contents
        identity = Identity.create(folder / ME, ME, held_out=0.0)
        approved = {each.approval for each in contents.values()}
        policy = Policy(ADMIN.public, approved, case["mu_budget"], reports_site=False)
        if owner:
            identity = Identity(identity.folder, ME, SigningKey(bytes.fromhex(owner["identity"])))
            policy = Policy(owner["federation"], **owner["policy"])
        environment = Environment(now_s=lambda: self.now_s)
        self.member = Conversations(identity, policy, environment=environment)
        keys = {ME: identity.public, **{member: key.public for member, key in OTHERS.items()}}
        self.keys = {ME: identity.key, **OTHERS}
        self.roster = simulated_roster(ADMIN, COORDINATOR.public, keys)
        self.session, self.ledger = self.member.session, self.member.session.store.ledger
        self.counter, self.attempts = 0, dict[str, Attempt]()
        self.closings = dict[bytes, Closing]()

    def close(self) -> None:
        """Close the member's folder."""
        self.member.close()

    def take(self, step: Json) -> Json:
        """Take one step, the name of its first field."""
        acts = {
            "answer": self.answer, "open": self.open, "announce": self.announce, "end": self.end,
            "give-up": self.give_up, "over": self.end_run, "mark": self.mark, "clock": self.set_clock,
        }  # fmt: skip
        return refusal(lambda: acts[next(iter(step))](step))

    def shown(self) -> Json:
        """Return the ledger as a play shows it: its runs, and which of the watched records are free."""
        marks = self.ledger.marks_in(ADMIN.public)
        watched = {marks.mark_record(each.encode()): each for each in self.case["watch"]}
        budget = self.case["mu_budget"]
        free = {
            name: self.ledger.free_records(tuple(watched), content.question, budget)
            for name, content in self.contents.items()
        }
        return {
            "runs": [[run.study, run.period, _state_of(run)] for run in self.ledger.list_runs()],
            "free": {name: [each for mark, each in watched.items() if mark in free[name]] for name in free},
        }

    # Steps

    def answer(self, step: Json) -> Json:
        self.counter += 1
        study, repeats = self.studies[step["answer"]], self._context_of(step.get("repeats"))
        view = _invited(self.roster, study, self.counter, step["period"], repeats)
        invitation = Invitation(view, self.roster, study, None)
        self.answered = view
        flow = send_card(
            self.session, bytes.fromhex(view.cohort), invitation, records_of(self.case["data"][step["data"]])
        )
        self._drive(flow)
        return {"yes": True}

    def invite(self, step: Json) -> Json:
        """Show an invitation as it is sent."""
        self.now_s, self.counter = step["now_s"], int(step["counter"])
        roster = Roster.from_bytes(bytes.fromhex(step["roster"]))
        study = Study.from_bytes(bytes.fromhex(step["study"]))
        view = _invited(roster, study, self.counter, step["period"], NO_CONTEXT)
        card = step["card"] and bytes.fromhex(step["card"])
        self.answered = view
        self._drive(
            send_card(
                self.session,
                bytes.fromhex(view.cohort),
                Invitation(view, roster, study, card),
                records_of(self.case["data"]["all"]),
            )
        )
        return {"yes": True}

    def open(self, step: Json) -> Json:
        attempt = self._attempt(step)
        self.ledger.check_attempt(attempt)
        history = self.ledger.load_history()
        self.ledger.store_history(history.enter_attempt(attempt), history)
        self.attempts[step["open"]] = attempt
        return {}

    def announce(self, step: Json) -> Json:
        attempt = self.attempts[step["announce"]]
        run = self.ledger.check_attempt(attempt)
        self.ledger.mark_uploaded(attempt.context)
        if attempt.spec.noisy:
            return {}
        return {"vector": own_vector(self.session, run, attempt.spec, {}).tolist()}

    def end(self, step: Json) -> Json:
        attempt = self.attempts[step["end"]]
        self.now_s = max(
            self.now_s,
            attempt.terms.latest_end_s if step["as"] in {LOST_REASON, ERASED_REASON} else self.now_s,
        )
        self.closings[attempt.context] = self._closing(attempt, step["as"], step.get("survivors", ()))
        self._drive(self.session.learn_endings())
        return {}

    def give_up(self, step: Json) -> Json:
        self.ledger.give_up(self._run(step["give-up"], step["period"]))
        return {}

    def end_run(self, step: Json) -> Json:
        self.ledger.give_up_over(self.contents[step["over"]].question.digest, step["period"])
        return {}

    def mark(self, step: Json) -> Json:
        marks = self.ledger.marks_in(ADMIN.public)
        keys = records_of(self.case["data"][step["mark"]]).keys
        self.ledger.mark_summed({marks.mark_record(each) for each in keys})
        return {}

    def set_clock(self, step: Json) -> Json:
        self.now_s = float(step["clock"])
        return {}

    # What a coordinator shows

    def _drive(self, flow: Flow[Any]) -> None:
        drive(flow, self._answer)

    def _answer(self, request: Request) -> Response:
        """Take a card, or show how an attempt ended, or the canary pack."""
        if request.method == "PUT":
            return Response(
                200, {"content-type": "application/json"}, self.answered.model_dump_json().encode()
            )
        if "/canaries/" in request.path:
            return Response(200, {}, bytes.fromhex(self.case["pack"]))
        found = self.closings.get(bytes.fromhex(request.path.split("/")[3]))
        return hidden(Cause.NOT_FOUND) if found is None else Response(200, {}, found.to_bytes())

    def _context_of(self, name: str | None) -> bytes:
        return NO_CONTEXT if name is None else self.attempts[name].context

    def _run(self, study: str, period: str) -> Run:
        run = self.ledger.find_run(self.contents[study].question.digest, period)
        assert run
        return run

    def _attempt(self, step: Json) -> Attempt:
        """Return a new attempt of the cohort in which the member enrolled, or of one in which it could not."""
        name, period, repeats = step["study"], step["period"], self._context_of(step.get("repeats"))
        study = self.studies[name]
        repeated = tuple(Survivor(member, DIGEST) for member in MEMBERS) if repeats != NO_CONTEXT else ()
        self.counter += 1
        enrolling = Enrolling(self.roster, study, self.counter, period, repeats, repeated)
        for member, key in self.keys.items():
            enrolled, _ = Enrolled.begin_enrolment(
                member, self.roster, study, key, counter=self.counter, period=period, serial=1, now_s=self.now_s, repeats=repeats
            )  # fmt: skip
            assert isinstance(enrolled, Enrolled)
            enrolling = enrolling.receive(enrolled.enrolment, self.now_s)
        manifest = PairingWindow.begin(enrolling).manifest
        terms = Terms(step["step"], NO_CONTEXT, NO_CONTEXT, (), (), NO_CONTEXT, int(self.now_s) + LIFETIME_S)
        opening = Opening.make_signed(
            COORDINATOR, cohort=manifest.cohort, sequence=0, attempt=0, links=(), terms=terms
        )
        return Attempt(self.roster, study, manifest, opening)

    def _closing(self, attempt: Attempt, reason: str, named: Sequence[str]) -> Closing:
        context = attempt.context
        if reason == LOST_REASON:
            return Lost.make_signed(ADMIN, context=context)
        if reason == ERASED_REASON:
            reports = (
                Erased.make_signed(key, context=context, member=member, revealed=NOTHING_REVEALED)
                for member, key in self.keys.items()
            )
            return Erasure(context, tuple(reports))
        survivors = tuple(Survivor(member, DIGEST) for member in named)
        outcome = (
            survivors_hash(context, survivors) if reason == NO_REASON else void_hash(context, Cause(reason))
        )
        votes = (
            Vote.make_signed(key, context=context, member=member, outcome=outcome)
            for member, key in self.keys.items()
        )
        return Certificate(context, survivors, reason, tuple(votes))


def _state_of(run: Run) -> str:
    if run.period.startswith(REHEARSAL):
        return "open" if run.state is State.RESERVED and not run.given_up else "over"
    if run.given_up and run.state is State.RESERVED:
        return "given up"
    return {State.DECLINED: "no"}.get(run.state, run.state.value)


def _sign_study(text: str) -> Study:
    return Study.make_signed(ADMIN, federation=ADMIN.public, content=text.encode())


def _invited(roster: Roster, study: Study, counter: int, period: str, repeats: bytes) -> rest.CohortView:
    notes = read_content(study.content).notes
    enrolling = Enrolling(roster, study, counter, period, repeats)
    return rest.CohortView(
        cohort=enrolling.cohort.hex(), federation=roster.federation.hex(), study=study.hash.hex(), name=notes.name,
        study_version=notes.version, period=period, counter=counter, repeats=repeats.hex() if repeats != NO_CONTEXT else None,
        state="enrolling", version=0, members=MEMBERS, cards=(), deadline_s=None, quorum=None, fault=None,
    )  # fmt: skip
