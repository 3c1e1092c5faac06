"""A member of a recorded round that takes part through the SDK, and a coordinator that answers it from the record or with false bytes."""

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias
from unittest.mock import patch

import numpy as np

from assurance.vectors.results import attempt_of
from assurance.vectors.rounds import Recorded, played
from assurance.vectors.stage import Script, clock, encapsulation, message_of
from client_sdk import upload, verification
from client_sdk.conversation import Conversation, run_round
from client_sdk.effects import Compute, Effect, Flow, Request, Response
from client_sdk.enrolment import enrol_in_cohort
from client_sdk.environment import Environment
from client_sdk.errors import NoResult, NotEnrolled, PeerFault
from client_sdk.identity import Identity
from client_sdk.member import Conversations
from client_sdk.policy import Policy
from client_sdk.records import Records
from client_sdk.store import Store
from tests.support.consortium import stored_in
from veilsum.protocol.attempt import Attempt, Closing
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.keys import Encapsulated, check_mlkem_key
from veilsum.protocol.member import MemberPhase
from veilsum.protocol.messages import (
    Cards,
    Certificate,
    Ciphertexts,
    Deliveries,
    Disclosure,
    Erasure,
    ErasureRequest,
    Evictions,
    Freeze,
    Lost,
    Message,
    Opening,
    VoidRequest,
)
from veilsum.protocol.rest import (
    OCTETS_TYPE,
    ROUND_ENDINGS,
    STATE_HEADER,
    VERSION_HEADER,
    CohortState,
    CohortView,
    InvitationView,
    RoundView,
    UploadView,
    round_name,
)
from veilsum.study.views import spec_view

ROWS = 60
"""Rows of the member's data, at least as many as the recorded studies need."""
STATES: dict[type[Message], str] = {
    Opening: "collecting",
    Deliveries: "checking",
    Freeze: "freezing",
    VoidRequest: "voiding",
    Certificate: "revealing",
    Evictions: "revealing",
    ErasureRequest: "erasing",
    Erasure: "erased",
    Lost: "lost",
    Disclosure: "done",
}
"""The state of a round in which a member is shown a message."""
REQUESTS = {
    "invitation": "GET .*/invitation",
    "cards": "PUT .*/cards/.*|GET .*/manifest/.*",
    "pairing": "(PUT|GET) .*/pairings/.*",
    "request": "GET .*/requests/.*",
    "opening": "GET .*/opening",
    "roster": "GET .*/roster",
    "closing": "GET .*/closing",
    "evictions": "GET .*/evictions",
    "disclosure": "GET .*/disclosure/.*",
    "record": "GET .*/result",
    "round": "GET /v1/rounds/[^/]*",
    "upload": "PUT .*/uploads/.*",
    "answers": "POST .*/answers",
}
"""What a coordinator shows, by the requests that ask for it."""
Shown: TypeAlias = Mapping[str, bytes | str]
"""Bytes of messages and text of documents, by the names of `REQUESTS`."""


class Stopped(BaseException):
    """The member waits for news, and there is none."""


@dataclass
class RecordedCoordinator:
    """Answers a member's requests.

    Attributes:
        recorded: the round.
        attempt: whose round it shows; the first one's while members enrol.
        state: of the cohort or round.
        shown: in place of what is recorded.
        closings: that it has shown, by context.
        sent: what the member has sent.
    """

    recorded: Recorded
    attempt: Attempt
    state: str = "enrolling"
    shown: Shown = field(default_factory=dict)
    closings: dict[str, bytes] = field(default_factory=dict)
    sent: list[bytes] = field(default_factory=list)

    def answer(self, request: Request) -> Response:
        """Answer a request; raise Stopped where an answer would wait for news."""
        if request.method == "GET" and "after" in request.params:
            raise Stopped
        line = f"{request.method} {request.path}"
        asked = next(name for name, pattern in REQUESTS.items() if re.fullmatch(pattern, line))
        if asked in {"upload", "answers"} or (asked == "pairing" and request.body):
            self.sent.append(request.body)
        if asked == "pairing" and asked not in self.shown:
            raise Stopped
        body = self.shown[asked] if asked in self.shown else self._answer(asked, request.path)
        state = "done" if asked == "answers" and body else self.state
        headers = {"content-type": OCTETS_TYPE, VERSION_HEADER: "1", STATE_HEADER: state}
        if isinstance(body, str):
            return Response(200, {**headers, "content-type": "application/json"}, body.encode())
        return Response(200 if body or asked in self.shown else 204, headers, body)

    def _answer(self, asked: str, path: str) -> bytes | str:
        document, name = self.recorded.document, path.split("/")[3]
        match asked:
            case "invitation":
                view = InvitationView(
                    cohort=self._cohort(), roster=document["roster"], study=document["study"]
                )
                return view.model_dump_json()
            case "cards":
                return self._cohort().model_dump_json()
            case "round":
                return self._round(name).model_dump_json()
            case "upload":
                return UploadView(member=path.split("/")[5], chunks=1, missing=()).model_dump_json()
            case "closing":
                return self.closings[name]
            case "roster":
                return bytes.fromhex(document["roster"])
            case "opening":
                return self.attempt.opening.to_bytes()
            case "evictions":
                return self._evictions().to_bytes()
            case _:
                return b""

    def _evictions(self) -> Evictions:
        begins = bytes((Evictions.version, Evictions.kind)).hex()
        found = [each for each in self.recorded.document["messages"] if each.startswith(begins)]
        return Evictions.from_bytes(bytes.fromhex(found[0])) if found else Evictions(self.attempt.context, ())

    def _cohort(self) -> CohortView:
        federation = self.recorded.federation
        notes, manifest = federation.content.notes, federation.manifest
        states: dict[str, CohortState] = {"pairing": "pairing", "formed": "formed"}
        state = states.get(self.state, "enrolling")
        return CohortView(
            cohort=manifest.cohort.hex(),
            federation=federation.admin.public.hex(),
            study=federation.study.hash.hex(),
            name=notes.name,
            study_version=notes.version,
            period=manifest.period,
            counter=manifest.counter,
            repeats=None,
            state=state,
            version=1,
            members=manifest.members,
            cards=manifest.members,
            paired=manifest.members if state == "formed" else (),
            deadline_s=None,
            quorum=None,
            fault=None,
        )

    def _round(self, name: str) -> RoundView:
        values = {
            "round": name,
            "federation": self.attempt.roster.federation.hex(),
            "cohort": self.attempt.manifest.cohort.hex(),
            "context": self.attempt.context.hex(),
            "sequence": self.attempt.opening.sequence,
            "attempt": self.attempt.opening.attempt,
            "state": self.state,
            "ended": self.state in ROUND_ENDINGS,
            "version": 1,
            "deadline_s": None,
            "members": self.attempt.members,
            "survivors_min": self.attempt.quorum.survivors_min,
            "threshold": self.attempt.quorum.threshold,
            "uploaded": (),
            "waiting_for": (),
            "survivors": (),
            "fault": None,
            "phase_seconds": {},
            "spec": spec_view(self.attempt),
        }
        return RoundView.model_validate(values)


class RecordedMember:
    """A member at a place of a recorded round.

    Attributes:
        coordinator: answers it.
        now_s: its clock.
    """

    def __init__(self, folder: Path, round_: str, member: str) -> None:
        self.folder, self.round, self.member = folder, round_, member
        self.recorded = played(round_)
        self.document, federation = self.recorded.document, self.recorded.federation
        self.coordinator = RecordedCoordinator(self.recorded, attempt_of(round_, 0))
        self.now_s, self._draws = float(self.document["now_s"]), Script()
        key = SigningKey(bytes.fromhex(self.document["members"][member]["identity"]))
        self._conversations = Conversations(
            Identity(folder, member, key),
            Policy(federation.admin.public, {federation.content.approval}),
            progress=lambda _: None,
            environment=Environment(
                now_s=lambda: self.now_s,
                monotonic_s=lambda: 0.0,
                random_bytes=self._draw,
                encapsulate=self._encapsulate,
                jitter=lambda: 0.0,
            ),
        )
        self.session = self._conversations.session

    @classmethod
    def start(cls, folder: Path, round_: str, member: str) -> "RecordedMember":
        """Make the member's folder, answer yes, and send its card."""
        Store.create(folder, member, held_out=0.0)
        made = cls(folder, round_, member)
        made._will_draw(made.document["members"][member], "x25519_private", "mlkem_seed", "nonce")
        assert made.enrol() is None
        return made

    def copy_to(self, folder: Path, now_s: float) -> "RecordedMember":
        """Start another process on a copy of the folder, at another time."""
        shutil.copytree(self.folder, folder)
        other = RecordedMember(folder, self.round, self.member)
        other.coordinator, other.now_s = replace(self.coordinator), now_s
        other.session.erase_expired()
        return other

    def close(self) -> None:
        self._conversations.close()

    @property
    def attempt(self) -> Attempt:
        """The attempt whose round it is in, or will be."""
        return self.coordinator.attempt

    @property
    def round_id(self) -> str:
        """The name of that round."""
        return round_name(self.attempt.context)

    @property
    def sent(self) -> list[bytes]:
        """What it has sent since it was last shown something."""
        return self.coordinator.sent

    @property
    def phase(self) -> MemberPhase:
        """Its stored phase."""
        held = self.session.store.load_phase(self.recorded.federation.manifest.cohort)
        assert held is not None
        return held.phase

    def stored(self) -> dict[str, Any]:
        """Return all that the member has stored."""
        return stored_in(self.folder)

    def conversation(self, round_id: str) -> Conversation:
        """Return its conversation in a round."""
        return Conversation(self.session, self.recorded.federation.manifest.cohort, round_id)

    # What it is shown

    def enter(self, number: int) -> None:
        """Stand in an attempt, or in `ENROLMENT`, at the round's time."""
        self.now_s = float(self.document["now_s"])
        self.coordinator.attempt = attempt_of(self.round, max(number, 0))

    def take(self, number: int, index: int) -> None:
        """Take a message of an attempt as it is recorded."""
        message = message_of(self.round, index)
        data = message.to_bytes()
        self.now_s = clock(self.document, message)
        if isinstance(message, Cards):
            assert self.enrol({"cards": data}) is None
            return
        if isinstance(message, Ciphertexts):
            assert self.enrol({"pairing": data}, "formed") is None
            return
        if isinstance(message, Closing):
            self.coordinator.closings[message.context.hex()] = data
        given = self.document["attempts"][number]["members"][self.member]
        self._will_draw(given, "b_u", "coefficients", "salt")
        asked = "disclosure" if isinstance(message, Disclosure) else "request"
        with patch.object(upload, "own_vector", lambda *_: np.array(given["vector"], np.int64)):
            fault = self.take_part(state_of(message), {asked: data})
        assert fault is None or isinstance(fault, NoResult), fault

    def enrol(
        self, shown: Shown = MappingProxyType({}), state: str = "enrolling"
    ) -> PeerFault | NotEnrolled | None:
        """Enrol and pair, until the coordinator shows nothing more.

        Args:
            shown: cards, in answer to its own one, or once it asks for them; ciphertexts, in answer to its pairing or once it asks.
            state: of the cohort. While its members pair, the coordinator has no pairing of this one; once it is formed, it has.
        """
        federation, rng = self.recorded.federation, np.random.default_rng(0)
        question, ids = federation.content.question, np.arange(ROWS)
        records = Records(rng.standard_normal((ROWS, question.dim)), ids % len(question.classes), ids)
        return self._run(state, shown, enrol_in_cohort(self.session, federation.manifest.cohort, records))

    def take_part(self, state: str, shown: Shown, round_id: str = "") -> PeerFault | NotEnrolled | None:
        """Take part in a round, by default the attempt's, until it ends or the member waits."""
        return self._run(state, shown, run_round(self.session, round_id or self.round_id))

    def settle(self, closing: bytes) -> PeerFault | NotEnrolled | None:
        """Learn how open attempts ended."""
        return self._run("collecting", {"closing": closing}, self.session.learn_endings())

    def _draw(self, count: int) -> bytes:
        return self._draws(count)

    def _encapsulate(self, mlkem_key: bytes, owner: str) -> Encapsulated:
        check_mlkem_key(mlkem_key, owner)
        return encapsulation(self.document, self.member, self.recorded.federation.manifest)(mlkem_key, owner)

    def _will_draw(self, given: dict[str, str], *names: str) -> None:
        self._draws = Script(*(bytes.fromhex(given[name]) for name in names))

    def _run(self, state: str, shown: Shown, flow: Flow[Any]) -> PeerFault | NotEnrolled | None:
        """Run a flow to its end, or until it waits. Returns its fault, or that the member's keys have lapsed."""
        here = self.coordinator
        here.state, here.shown, here.sent = state, shown, []
        try:
            effect = next(flow)
            while True:
                effect = flow.send(_perform(effect, here))
        except (Stopped, StopIteration):
            return None
        except (PeerFault, NotEnrolled) as fault:
            return fault
        finally:
            flow.close()


def _perform(effect: Effect, coordinator: RecordedCoordinator) -> object:
    if isinstance(effect, Compute):
        return effect.work()
    return coordinator.answer(effect) if isinstance(effect, Request) else None


def state_of(message: Message) -> str:
    """Return the state of the round in which a member is shown a message."""
    if isinstance(message, Certificate) and message.is_void:
        return "voided"
    return STATES[type(message)]


@contextmanager
def without_data() -> Iterator[None]:
    """Skip the checks of material and published files: the recorded vectors are random numbers, and no head follows from them."""

    def no_material(*_: Any) -> Flow[dict[str, Any]]:
        yield from ()
        return {}

    with (
        patch.object(Conversation, "_fetch_material", no_material),
        patch.object(verification, "_check_files"),
    ):
        yield
