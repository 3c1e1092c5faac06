"""Plays as scripts: the inputs of the attacked party, and every message that it receives up to the one that it refuses.

A recorder watches a play. Phases are immutable values, so the steps to the refusing phase are found by going backwards from it,
whatever else the play tries.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from typing import Any
from unittest.mock import patch

from assurance.attacks.base import Attack, Played
from assurance.vectors.rounds import encapsulate_drawn
from veilsum.protocol.coordinator import Collecting, Erasing, Voiding
from veilsum.protocol.coordinator.base import CoordinatorPhase
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.keys import Encapsulated
from veilsum.protocol.member import Enrolled, History, Opened
from veilsum.protocol.member.base import MemberPhase
from veilsum.protocol.messages import NO_CONTEXT, Cards, Freeze, Refusal, Roster, Study
from veilsum.protocol.sealing import Sealing
from veilsum.protocol.shamir import LIMB_PRIME

Json = dict[str, Any]
NAMES = {"take", "unopened", "pairing", "roster", "study", "manifest", "opening", "earlier"}
"""Fields of a step that are messages."""
CHARACTERS_MAX = 80_000
"""Limit of the messages that a script adds to the file."""
ENDS = {Voiding: "void", Erasing: "erasure"}
"""How a script ends with what the coordinator asks for."""
STAGED = {
    "a victim whose neighbours are all named as dropped",
    "two neighbours on a ring lost, of which one may be",
}
"""Plays that change the receiver's state directly, or have a ring of fewer members than any that follows from sizes."""


@dataclass(frozen=True)
class Step:
    """An event of one party.

    Attributes:
        before: the party's phase; None if it starts here.
        what: the step, as a script has it.
        after: the party's next phase; None if it refused.
        end: how a script may end here, with cause and parties.
    """

    before: Any
    what: Json
    after: Any
    end: tuple[str, str, tuple[str, ...]] | None = None


@dataclass
class Recorder:
    """Record every call that changes a phase.

    Attributes:
        steps: of all parties, in order.
        drawn: inputs of each upload, by its bytes.
        chunks: by digest.
    """

    steps: list[Step] = field(default_factory=list)
    drawn: dict[bytes, Json] = field(default_factory=dict)
    chunks: dict[bytes, bytes] = field(default_factory=dict)
    inside: bool = False

    @contextmanager
    def running(self) -> Iterator[None]:
        """Record all steps inside this block."""
        with ExitStack() as stack:
            members = {
                form
                for phase in MemberPhase.forms.values()
                for form in phase.__mro__
                if issubclass(form, MemberPhase)
            }
            phases = {*members, *_below(CoordinatorPhase)}
            told: dict[str, Callable[..., Json]] = {
                "receive": lambda _, message, *rest: {
                    "take": message.to_bytes().hex(),
                    "now_s": int(rest[-1]),
                },
                "store_upload": lambda _, upload, __: self.drawn[upload.to_bytes()],
                "erase_expired": lambda _, now_s: {"wait": int(now_s)},
                "pass_deadline": lambda _, now_s: {"wait": int(now_s)},
                "erase_unopened": lambda _, opening, request, __, now_s: {
                    "unopened": opening.to_bytes().hex(),
                    "take": request.to_bytes().hex(),
                    "now_s": int(now_s),
                },
                "chunk_stored": self._chunk,
                "cancel": lambda _, now_s: {"cancel": int(now_s)},
                "chunk_damaged": lambda _, member, index: {"damaged": index, "member": member},
            }
            for form in phases:
                for name in told.keys() & vars(form).keys():
                    stack.enter_context(patch.object(form, name, self._changed(vars(form)[name], told[name])))
                if "pair" in vars(form):
                    stack.enter_context(patch.object(form, "pair", self._pair_of(vars(form)["pair"])))
            for form, name, start in (
                (Enrolled, "begin_enrolment", self._member),
                (Collecting, "begin", self._coordinator),
            ):
                stack.enter_context(patch.object(form, name, start(getattr(form, name))))
            for name in ("mask_next_chunk", "finish"):
                making = getattr(self, f"_{name}_of")(getattr(Sealing, name))
                stack.enter_context(patch.object(Sealing, name, making))
            stack.enter_context(patch.object(Opened, "begin_sealing", _taping(Opened.begin_sealing)))
            yield

    def _changed(self, original: Callable[..., Any], told: Callable[..., Json]) -> Callable[..., Any]:
        def change(phase: Any, *arguments: Any) -> Any:
            if self.inside:
                return original(phase, *arguments)
            self.inside, what = True, told(phase, *arguments)
            try:
                result = original(phase, *arguments)
            except PeerFault as fault:
                self.steps.append(Step(phase, what, None, ("refused", fault.cause.value, fault.parties)))
                raise
            finally:
                self.inside = False
            after, said = result if isinstance(result, tuple) else (result, ())
            end: tuple[str, str, tuple[str, ...]] | None = None
            if said and isinstance(said[0], Refusal):
                end = ("refusal", said[0].cause, ())
            elif isinstance(after, Voiding | Erasing) and not isinstance(phase, Voiding | Erasing):
                end = (ENDS[type(after)], after.fault.cause.value, after.fault.parties)
            if end or after is not phase:
                self.steps.append(Step(phase, what, after, end))
            return result

        return change

    def _pair_of(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Encapsulate what follows from the cards, so that a script is the same every time."""

        def pair(phase: Any, cards: Cards, key: SigningKey, now_s: float, *_: Any) -> Any:
            what: Json = {"take": cards.to_bytes().hex(), "now_s": int(now_s)}
            secrets = dict[str, str]()

            def encapsulate(mlkem_key: bytes, owner: str) -> Encapsulated:
                drawn = sha256(phase.card.signature + cards.manifest.hash + mlkem_key).digest()
                made = encapsulate_from(drawn, mlkem_key)
                secrets[owner] = made.secret.hex()
                return made

            def act(phase: Any, cards: Cards, key: SigningKey, now_s: float) -> Any:
                after, said = original(phase, cards, key, now_s, encapsulate)
                if secrets:
                    what.update(secrets=secrets, pairing=said[0].to_bytes().hex())
                return after, said

            return self._changed(act, lambda *_: what)(phase, cards, key, now_s)

        return pair

    def _chunk(self, phase: Collecting, member: str, index: int, _now_s: float) -> Json:
        data = self.chunks[phase.announced[member].chunk_digest(index)]
        return {"member": member, "index": index, "chunk": data.hex()}

    def _member(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def start(member: str, roster: Roster, study: Study, key: SigningKey, **given: Any) -> Any:
            drawn: list[bytes] = []
            draw = given.pop("random_bytes", os.urandom)
            result = original(
                member, roster, study, key, **given, random_bytes=lambda n: _kept(drawn, draw(n))
            )
            names = ("x25519_private", "mlkem_seed", "nonce")
            what: Json = {
                "roster": roster.to_bytes().hex(),
                "study": study.to_bytes().hex(),
                "counter": str(given["counter"]),
                "period": given["period"],
                "repeats": given.get("repeats", NO_CONTEXT).hex(),
                "serial": str(given["serial"]),
                **{n: d.hex() for n, d in zip(names, drawn, strict=True)},
                "now_s": int(given["now_s"]),
            }
            if (history := given.get("history", History())) == History():
                first = {"to": member, "identity": key.seed.hex(), **what}
                self.steps.append(Step(None, first, result[0]))
            elif before := self._phase_with(member, history):
                self.steps.append(Step(before, {"enrol": True, **what}, result[0]))
            return result

        return start

    def _phase_with(self, member: str, history: History) -> Any:
        """Return the newest phase of a member that knows this history."""
        phases = (step.after for step in reversed(self.steps) if getattr(step.after, "member", "") == member)
        return next((phase for phase in phases if phase.history == history), None)

    def _coordinator(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def begin(attempt: Any, now_s: float, earlier: Any = (), *rest: Any) -> Any:
            result = original(attempt, now_s, earlier, *rest)
            shown = {
                "roster": attempt.roster,
                "study": attempt.study,
                "manifest": attempt.manifest,
                "opening": attempt.opening,
            }
            what: Json = {"to": "coordinator", "now_s": int(now_s)}
            # As a proposal that contains it, but no headers.
            what |= (
                {"earlier": Freeze(attempt.context, (), tuple(earlier)).to_bytes().hex()} if earlier else {}
            )
            self.steps.append(Step(None, what | {n: m.to_bytes().hex() for n, m in shown.items()}, result))
            return result

        return begin

    def _mask_next_chunk_of(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def chunk(sealing: Any, values: Any) -> Any:
            packed = bytes(original(sealing, values))
            sealing.vector = [*getattr(sealing, "vector", ()), *map(int, values)]
            self.chunks[sha256(packed).digest()] = packed
            return memoryview(packed)

        return chunk

    def _finish_of(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def finish(sealing: Any, key: SigningKey) -> Any:
            upload, own = original(sealing, key)
            b_u, coefficients, salt = sealing.drawn
            words = [
                int.from_bytes(coefficients[i : i + 4], "little") & LIMB_PRIME
                for i in range(0, len(coefficients), 4)
            ]
            self.drawn[upload.to_bytes()] = {
                "vector": sealing.vector,
                "b_u": b_u.hex(), "salt": salt.hex(), "coefficients": b"".join(w.to_bytes(4, "little") for w in words).hex(),
            }  # fmt: skip
            return upload, own

        return finish

    def script(self, cause: str, parties: tuple[str, ...]) -> list[Step] | None:
        """Return all steps of a party from its start to the last one with this end; None if they don't connect."""
        alike = [at for at, step in enumerate(self.steps) if step.end and step.end[1] == cause]
        ends = [at for at in alike if (self.steps[at].end or ())[2:] == (parties,)] or alike
        if not ends:
            return None
        return self._lead_to(ends[-1])

    def steps_to(self, phase: Any) -> list[Step]:
        """Return all steps of a party from its start to this phase."""
        found = self._lead_to(max(at for at, step in enumerate(self.steps) if step.after is phase))
        assert found
        return found

    def _lead_to(self, last: int) -> list[Step] | None:
        found = [self.steps[last]]
        for step in reversed(self.steps[:last]):
            if found[0].before is None:
                break
            reached = (
                step.after,
                getattr(step.after, "ready", None),
            )  # a closed attempt's keys are ready for the next
            if any(each is found[0].before or each == found[0].before for each in reached):
                found.insert(0, step)
        return found if found[0].before is None else None


@cache
def encapsulate_from(drawn: bytes, mlkem_key: bytes) -> Encapsulated:
    """Encapsulate these 32 bytes."""
    return encapsulate_drawn(lambda _count: drawn, mlkem_key)


def _below(form: type) -> set[type]:
    return {form}.union(*map(_below, form.__subclasses__()))


def _kept(drawn: list[bytes], data: bytes) -> bytes:
    drawn.append(data)
    return data


def _taping(original: Callable[..., Any]) -> Callable[..., Any]:
    def seal(phase: Opened, draw: Callable[[int], bytes]) -> Any:
        drawn: list[bytes] = []
        sealing = original(phase, lambda count: _kept(drawn, draw(count)))
        sealing.drawn = drawn
        return sealing

    return seal


def exported(attacks: tuple[Attack, ...], said: dict[str, int]) -> Iterator[Json]:
    """Play every attack, which must end as it says, and yield the script of each that ends with one party's messages. `said` numbers them."""
    yield from filter(None, (_exported(attack, said) for attack in attacks))


def _exported(attack: Attack, said: dict[str, int]) -> Json | None:
    recorder = Recorder()
    if not isinstance(attack, Played):
        return None
    with recorder.running():
        fault = attack.run()
    assert (fault.cause, fault.parties) == (attack.cause, attack.parties), f"{attack.name}: {fault}"
    steps = recorder.script(attack.cause.value, attack.parties)
    if steps is None or attack.name in STAGED:
        return None
    texts = {step.what[name] for step in steps for name in NAMES & step.what.keys()}
    if sum(len(text) for text in texts - said.keys()) > CHARACTERS_MAX:
        return None
    ending = steps[-1].end
    assert ending
    return {
        "name": attack.name, "rule": attack.rule, "cause": attack.cause.value, "parties": list(attack.parties),
        "ends": ending[0], **script_of(steps, said),
    }  # fmt: skip


def script_of(steps: list[Step], said: dict[str, int]) -> Json:
    """Return where a party starts, and its steps."""
    start, *rest = (_numbered(step.what, said) for step in steps)
    start.setdefault("now_s", next((each["now_s"] for each in rest if "now_s" in each), 0))
    return {**start, "steps": rest}


def _numbered(what: Json, said: dict[str, int]) -> Json:
    """Replace messages by their numbers."""
    return {n: said.setdefault(each, len(said)) if n in NAMES else each for n, each in what.items()}
