"""Two implementations, one of them written from the specification alone: in random rounds, both make the same bytes.

`make agreement` runs more of them and leaves `runs/reference.json`.
"""

import json
import os
import platform
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assurance.reference import reference, wire
from assurance.reference.lies import Lie
from assurance.reference.lockstep import TAKES, Lockstep
from assurance.reference.study import RECIPES, Study
from assurance.reference.wire import M, Refused
from tests.support.forging import again
from tests.support.simulator import After
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Checking, CoordinatorPhase, Freezing
from veilsum.protocol.counting import CountOutcome
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.member import Closed, Ready
from veilsum.protocol.messages import (
    NO_CONTEXT,
    NO_REASON,
    Cards,
    Erased,
    ErasureRequest,
    Message,
    Pairing,
    Receipt,
    Terms,
    Upload,
    Vote,
)
from veilsum.protocol.opening_rules import next_step
from veilsum.protocol.study import DISCLOSED_STEPS, JUDGE_BITS, JUDGE_STEP

ROUNDS = int(os.environ.get("REFERENCE_ROUNDS", "30"))
"""Rounds in all; each federation lives for `EACH` of them."""
EACH = 5

KINDS = ("dealing", "range", "row", "edge")
WITHHELD: dict[str, Any] = {
    "dim": 3,
    "records": {"least": 50, "most": 500, "least_per_class": 20, "rows_per_id": 1},
    "withhold": {"margin": 0},
}


JUDGE = {"epsilon": 1.0, "delta": 1e-6, "heads": 2, "positive": None, "bins": {"confidence": 5, "score": 8}}


@pytest.fixture(autouse=True)
def _remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cache checks that all twelve members would repeat, because they run in one process."""
    monkeypatch.setattr(reference, "decode", lru_cache(1 << 12)(wire.decode))
    monkeypatch.setattr(wire, "signed", lru_cache(1 << 12)(wire.signed))
    monkeypatch.setattr(reference, "Study", lru_cache(1 << 8)(Study))


@pytest.fixture(scope="module")
def figures() -> Iterator[Counter[str]]:
    """Count over all tests; write a file after a long run."""
    counts, began = Counter[str](), time.perf_counter()
    yield counts
    if "REFERENCE_ROUNDS" in os.environ:
        seconds = round(time.perf_counter() - began, 1)
        run = {"rounds": ROUNDS, "python": platform.python_version(), "seconds": seconds}
        path = Path("runs/reference.json")
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({**run, **dict(sorted(counts.items()))}, indent=1) + "\n")


def asked(rng: random.Random, members: int) -> dict[str, Any]:
    """Make a question with short vectors: exact, exact under a count, or noisy."""
    a, n_min = members // 4, max(members // 4 + 3, (members + members // 4) // 2 + 1)
    dim = rng.randint(2, 4)
    kinds: list[dict[str, Any]] = [{"kind": "ffc"}]
    kinds += [{"kind": "random-features", "size": 2, "bandwidth": 1.0}] if rng.random() < 0.2 else []
    fields: dict[str, Any] = {
        "dim": dim,
        "classes": [f"class-{number}" for number in range(rng.randint(2, 5))],
        "constant": rng.random() < 0.5,
        "statistics": kinds,
        "ring_bits": rng.choice([32, 48]),
        "records": {"least": 50, "most": 60, "least_per_class": rng.choice([1, 50]), "rows_per_id": 1},
        "members_min": rng.choice([n_min, rng.randint(n_min, members)]),
        "withhold": None,
        "noise": None,
        "judge": JUDGE if rng.random() < 0.5 else None,
        "a": a,
        "loss": rng.choice([0, 100, 374]),
        "windows": {"enrol": 60, "upload": rng.choice([60, 600]), "answer": rng.choice([10, 60])},
    }
    kind = rng.random()
    if kind < 0.4:
        room = fields["members_min"] - n_min
        margin = rng.randint(0, room)
        if fields["members_min"] - a - margin < 14:  # so many rows has a class of any question here
            fields["records"]["least_per_class"] = 50
        fields |= {"withhold": {"margin": margin}}
    elif kind < 0.6:
        recipe = rng.choice([*RECIPES])
        unit = rng.choice(["record", "member"]) if recipe in {"sum", "mean+sum"} else "record"
        noise = {"epsilon": 10.0, "delta": 1e-6, "unit": unit, "recipe": recipe}
        fields |= {"noise": noise, "ring_bits": 48, "statistics": kinds[:1]}
    return fields


def spoiled(federation: Lockstep, rng: random.Random, terms: Terms) -> Terms:
    """Return terms with one field that may be wrong, or with a short lifetime."""
    wrong: dict[str, Any] = {
        "latest_end_s": int(federation.now_s) + 1 + rng.choice([1, 30, 90, 31 * 86_400]),
        "material": rng.choice([bytes(32), rng.randbytes(32)]),
        "step": rng.choice(federation.content.question.steps_in(federation.manifest.period)),
        "count": rng.choice([rng.randbytes(32), *(link.context for link in federation.links)]),
    }
    if terms.count != NO_CONTEXT:
        wrong |= {"rows": rng.choice([NO_CONTEXT, *(link.context for link in federation.links)])}
        wrong |= {"withheld": (0, 1)[rng.randrange(3) :], "evicted": tuple(rng.sample(federation.ids, 1))}
    name = rng.choice([*wrong])
    return replace(terms, **{name: wrong[name]})


def rounds(seed: int) -> Lockstep:
    """Return a federation after `EACH` attempts, with random faults."""
    rng = random.Random(seed)
    n = min(rng.randint(3, 12) for _ in range(3))
    nominees = sorted(rng.sample(range(n), rng.randint(min(n, 4), n))) if rng.random() < 0.3 else ()
    federation = Lockstep(n, seed=seed, decryptors=nominees, question=asked(rng, n), chunk=8 * rng.randint(1, 6))
    for _ in range(EACH):
        if rng.random() < 0.1:
            another(federation, rng)
        if federation.links and federation.links[-1].reason != NO_REASON and rng.random() < 0.2:
            forget(federation, rng)
        while (step := federation.next_step()) is None or (is_over(federation) and rng.random() < 0.8):
            another(federation, rng)
        calm = rng.random() < 0.6
        federation.late = frozenset(each for each in federation.ids if not calm and rng.random() < 0.15)
        federation.drop = {index: rng.choice([*After]) for index in range(n) if not calm and rng.random() < 0.15}
        if n > 3 and rng.random() < 0.3:
            federation.lies = {rng.choice(federation.ids): Lie(rng.choice(KINDS), rng.choice([0, rng.randrange(64)]))}
        question, values = federation.content.question, np.random.default_rng(rng.getrandbits(32))
        size = question.elements_of(step)
        if step in DISCLOSED_STEPS:  # of most members or of few
            shares = values.choice([0.1, 0.9, 1.0], size)
            vectors = {member: (values.random(size) < shares).astype(np.int64) for member in federation.ids}
        else:
            high = 1 << (JUDGE_BITS if step == JUDGE_STEP else question.ring_bits) - 1
            vectors = {member: values.integers(-high, high, size) for member in federation.ids}
        terms = federation.terms(step)
        if rng.random() < 0.1:
            terms = spoiled(federation, rng, terms)
        if rng.random() < 0.3:
            forged(federation, rng)
        outcome = federation.run_round(vectors, terms)
        if outcome.total is not None and terms.step in DISCLOSED_STEPS:
            federation.disclose()
    return federation


def is_over(federation: Lockstep) -> bool:
    """Whether an honest coordinator would end the run here: its counts allow no sum."""
    question, shown = federation.content.question, federation.manifest

    def outcomes(context: bytes) -> CountOutcome | None:
        counted = federation.counted.get(context)
        return None if counted is None else counted.to_outcome(shown.survivors_min)

    return (
        next_step(question, shown.period, federation.links, outcomes, repeats=shown.repeats, cohort=shown.cohort)
        is None
    )


def forged(federation: Lockstep, rng: random.Random) -> None:
    """Show some members openings that break one of the first rules of OPEN."""
    true = federation.opening(federation.terms(federation.next_step()))
    links, question = true.links, federation.content.question
    others = sorted({*question.steps, "judge"} - {*question.steps_in(federation.manifest.period)})
    fields: list[dict[str, Any]] = [{"cohort": rng.randbytes(32)}, {"sequence": true.sequence + 1}]
    fields += [{"terms": replace(true.terms, step=step)} for step in others]
    if links:
        place = rng.randrange(len(links))
        other = replace(links[place], reason="another-end", survivors=NO_CONTEXT)
        # One without a certified set may be left out, as in `forget`.
        left_out = [{"links": links[:place] + links[place + 1 :]}] if links[place].reason == NO_REASON else []
        fields += [
            *left_out,
            {"links": (*links[:place], other, *links[place + 1 :])},
            {"links": (*links, replace(links[place], cohort=rng.randbytes(32)))},
        ]
    for change in fields:
        signer = rng.choice([federation.coordinator] * 5 + [federation.admin])
        values = {name: getattr(true, name) for name in ("cohort", "sequence", "attempt", "links", "terms")}
        opening = type(true).make_signed(signer, **values | change)
        for member in rng.sample(federation.ids, 2):
            if isinstance(federation.phases[member], Ready | Closed):
                federation.show(member, opening)


def forget(federation: Lockstep, rng: random.Random) -> None:
    """Let the coordinator lose the last attempt, which certified no set; form a cohort of its period, or of the next one."""
    federation.drop, federation.lies = {}, {}
    federation.tell_ending()
    link = federation.links[-1]
    federation.links, known = federation.links[:-1], federation.known[""]
    known.links = known.links[:-1]
    federation.compared[f"forgotten {link.reason if link.reason in {'lost', 'erased'} else 'void'}"] += 1
    enrol(federation, rng, link.period if rng.random() < 0.5 else f"period-{federation.counter + 1}")


def another(federation: Lockstep, rng: random.Random) -> None:
    """Form the next cohort: of a new period of any kind, of a new study, or one that repeats a certified attempt."""
    federation.drop, federation.lies = {}, {}
    federation.tell_ending()
    exact = [link for link in federation.links if link.context in federation.sets and link.repeats == NO_CONTEXT]
    question = federation.content.question
    exact = [link for link in exact if link.step in question.steps_in(link.period) and question.noise is None]
    exact = [link for link in exact if {*federation.summed[link.context].withheld} <= {*range(len(question.classes))}]
    if exact and rng.random() < 0.7:
        link = rng.choice(exact)
        changes: dict[str, Any] = {"extractor": rng.randbytes(32).hex(), "dim": rng.randint(2, 4)}
        changes |= {"loss": 50} if rng.random() < 0.1 else {}
        if rng.random() < 0.7:
            federation.use(federation.study_of(**question.model_dump(mode="json") | changes))
        enrol(federation, rng, link.period, link.context)
        return
    if rng.random() < 0.3:
        federation.use(federation.study_of(**asked(rng, federation.members)))
    kind = rng.choice(["period", "period", "rehearsal", "judge", "judged", "rehearsal-of"])
    enrol(federation, rng, f"{kind}-{federation.counter + 1}")


def enrol(federation: Lockstep, rng: random.Random, period: str, repeats: bytes = NO_CONTEXT) -> None:
    """Form a cohort, in which some members may not pair; if it fails, form one of all members over fresh records.

    A repeated run also fails if a member never learnt how the repeated attempt ended: it refuses the cards.
    """
    federation.unpaired = unpaired(federation, rng)
    try:
        federation.enrol(period, repeats)
    except PeerFault:
        federation.unpaired = ()
        federation.enrol(f"period-{federation.counter + 1}")


def unpaired(federation: Lockstep, rng: random.Random) -> list[dict[str, type[Message]]]:
    """Draw the members that don't pair under each manifest, mostly no more than may stay away: their cards or their pairing is lost."""
    study = Study(federation.study.content)
    n_min = max(study.a + study.h, (federation.members + study.a) // 2 + 1)
    needed = max(study.members, n_min if study.withhold is None else max(n_min + study.margin, study.floor))
    room = federation.members - needed if rng.random() < 0.9 else 3
    lost = rng.sample(federation.ids, min(room, rng.choice([0, 1, 2, 3])))
    if len(lost) > 1 and rng.random() < 0.3:
        return [dict.fromkeys(lost, Pairing)]
    return [{member: rng.choice([Cards, Pairing])} for member in lost]


def on_a_ring(seed: int) -> Lockstep:
    """Play a cohort on a sparse graph: a sum, a window with too many dropouts, and half as many dropouts next to a liar."""
    rng = random.Random(seed)
    n = rng.randint(12, 16)
    nominees = sorted(rng.sample(range(n), 7)) if seed % 3 else ()
    lost: list[dict[str, type[Message]]] = [{f"member-{rng.randrange(n):02}": form} for form in (Cards, Pairing)]
    few = lost[: seed % 3]
    federation = Lockstep(
        n, seed=seed, decryptors=nominees, chunk=24, question={"dim": 3, "members_min": 9}, unpaired=few
    )
    for case in ("scattered", "window", "half"):
        federation.drop, federation.lies = {}, {}
        if federation.next_step() is None:
            federation.tell_ending()
            federation.enrol(f"period-{case}")
        ring = reference.by_draw("ring", federation.twin.m)
        place, allowed = rng.randrange(n), federation.manifest.window_dropped_max
        in_a_row = [federation.ids.index((ring * 2)[place + step]) for step in range(allowed + 1)]
        federation.drop = dict.fromkeys(in_a_row, After.OPENING)
        if case == "scattered":
            federation.drop = {rng.randrange(n): rng.choice([*After])}
        elif case == "half":
            federation.drop = dict.fromkeys(in_a_row[::2], After.OPENING)
            liar = federation.ids[in_a_row[1]]
            federation.lies = {liar: Lie(rng.choice(KINDS), rng.choice([0, rng.randrange(64)]))}
        federation.run_round()
    return federation


def test_both_make_the_same_bytes_of_every_message_and_the_same_sums(figures: Counter[str]) -> None:
    federations, counts = ROUNDS // EACH, Counter[str]()
    for seed in range(federations):
        try:
            federation = rounds(seed)
        except Exception as error:
            error.add_note(f"in the federation of seed {seed}")
            raise
        counts += federation.compared + federation.ends
    figures.update(counts)
    assert all(counts[kind] >= federations for kind in ("sum", "Upload", "Receipt", "Freeze", "Vote", "Reveal"))
    assert counts["late"] > 0 or federations < 20  # few decryptors are late
    paired = [counts[f"cohorts of {number} manifests"] for number in (1, 2, 3)]
    assert all([*paired, counts["cohorts that fail"]]) or federations < 20


@pytest.mark.parametrize("seed", range(max(2, ROUNDS // 100)))
@pytest.mark.usefixtures("fake_ring")
def test_both_agree_on_a_sparse_graph(seed: int, figures: Counter[str]) -> None:
    federation = on_a_ring(seed)
    assert federation.manifest.degree == 4 < federation.members - 1
    # The wide window is voided. Where it leaves too few decryptors, they report that they erased, or the admin closes the attempt.
    assert federation.ends.total() > federation.ends["Recovered"] >= 1
    figures.update({f"sparse {name}": count for name, count in (federation.compared + federation.ends).items()})


class Insistent(Lockstep):
    """After each message, replays all earlier ones of the attempt to the member. Sends each answer twice, and different answers as well."""

    def __post_init__(self) -> None:
        self.shown = defaultdict[str, dict[Message, None]](dict)
        super().__post_init__()

    def tell_member(self, member: str, message: Message) -> tuple[Message, ...]:
        replies = super().tell_member(member, message)
        self.shown[member][message] = None
        here = self.twins[member].context
        for before in self.shown[member]:
            if getattr(before, "context", here) == here:
                self.show(member, before)
        return replies

    def take_reply(self, phase: CoordinatorPhase, member: str, reply: Message) -> CoordinatorPhase:
        key, other = self.keys[member], reply
        match reply:
            case Upload():
                other = replace(reply, header=again(reply.header, key, salt=bytes(32)))
            case Receipt():
                other = again(reply, key, dealers=reply.complaints, complaints=reply.dealers)
            case Vote():
                other = again(reply, key, outcome=bytes(32))
                if isinstance(phase, Freezing):
                    self._compare(phase, other)
            case Erased():
                other = again(reply, key, revealed=bytes(range(32)))
        after = super().take_reply(phase, member, reply)
        if other != reply and type(after) is type(phase) and isinstance(after, TAKES[type(reply)]):
            self._compare(after, reply)
            self._compare(after, other)
        return after

    def _compare(self, phase: CoordinatorPhase, message: Message) -> None:
        """Compare a message that changes nothing."""
        cause = said = None
        try:
            assert phase.receive(message, self.now_s) == phase
        except PeerFault as fault:
            cause = fault.cause.value
        try:
            self.twin.receive(message.to_bytes())
        except Refused as refused:
            said = refused.args[0]
        assert said == cause
        self.compared[cause or "again"] += 1


@pytest.mark.parametrize("last", [None, After.UPLOAD, After.RECEIPT])
def test_each_message_is_taken_in_its_phase_and_once(last: After | None) -> None:
    """Half of the members leave after this message of theirs."""
    federation = Insistent(6, drop=dict.fromkeys(range(3), last) if last else {})
    federation.run_round()
    assert federation.ends == {"ClosedByAdmin" if last else "Recovered": 1}
    causes = {"again", "refused", "upload-conflict", "conflict", "already-voted"}
    assert causes <= {*federation.compared}
    assert ("survivors-invalid" in federation.compared) == (last is not After.UPLOAD)


def test_an_open_attempt_refuses_any_other_opening_before_it_looks_at_it() -> None:
    federation = Lockstep(5)
    federation.reach(Checking)
    true = federation.phase.attempt.opening
    values = {name: getattr(true, name) for name in ("cohort", "sequence", "attempt", "links", "terms")}
    expired = replace(true.terms, latest_end_s=0)
    for change in ({}, {"cohort": bytes(32)}, {"sequence": 1}, {"terms": expired}):
        for signer in (federation.admin, federation.coordinator):
            if change or signer is federation.admin:
                federation.show("member-1", type(true).make_signed(signer, **values | change))
    assert [fault.cause for _, fault in federation.faults] == [Cause.WRONG_SEQUENCE] * 7


def test_a_decryptor_beyond_an_attempt_that_it_never_took_does_not_report() -> None:
    noise = {"epsilon": 10.0, "delta": 1e-6, "unit": "record", "recipe": "mean+sum"}
    federation = Lockstep(6, question={"noise": noise, "ring_bits": 48}, drop={2: After.CARD})
    federation.run_round()
    missed, federation.drop = federation.phase.attempt, {}
    federation.run_round()
    assert federation.twins["member-2"].place == (1, 0)
    federation.now_s, faults = missed.terms.latest_end_s, len(federation.faults)
    federation.show("member-2", missed.opening)
    federation._erase_unopened("member-2", missed.opening, ErasureRequest(missed.context))
    federation.show("member-2", ErasureRequest(missed.context))
    causes = [fault.cause for _, fault in federation.faults[faults:]]
    assert causes == [Cause.TERMS_EXPIRED, Cause.WRONG_SEQUENCE, Cause.WRONG_CONTEXT]


def test_a_run_is_repeated_with_another_extractor_by_the_same_members() -> None:
    federation = Lockstep(8, margin=0, chunk=16, question=WITHHELD)
    federation.drop = {2: After.OPENING}
    ones = {member: np.ones(4, np.int64) for member in federation.ids}
    federation.run_round(ones)
    federation.disclose()
    assert federation.run_round().survivors == tuple(each for each in federation.ids if each != "member-2")
    (count, first), federation.drop = federation.links, {}
    federation.use(federation.study_of(**WITHHELD | {"extractor": "cd" * 32, "dim": 2}))
    federation.enrol("period-0", first.context)
    outcome = federation.run_round(terms=federation.terms("sum", count=count.context))
    assert outcome.total is not None
    assert len(outcome.survivors) == 7
    assert federation.twin.earlier == (M.SurvivorSet(federation.known[""].certified[first.context][1]),)


@pytest.mark.parametrize("seed", [0, 3])
def test_a_count_is_recounted_alike(seed: int) -> None:
    """If a dealer of the count is false, members are shown the proof first, and recount without it."""
    federation = Lockstep(7, seed=seed, margin=0, question=WITHHELD)
    federation.lies = {"member-3": Lie("dealing", 0)} if seed % 2 else {}
    holding = {member: np.array([1, 1, seed > 1, place < 3]) for place, member in enumerate(federation.ids)}
    federation.run_round(holding)
    federation.disclose()
    assert federation.compared["Disclosure"] == 1
    assert federation.compared["Evictions"] == seed % 2
    for member in federation.ids:
        ((counted, evicted, holders, _),) = federation.known[member].counted.values()
        assert (len(counted), evicted) == (7 - seed % 2, ("member-3",) * (seed % 2))
        assert holders[0] == 7 - seed % 2
    terms = federation.terms()
    assert terms.withheld == ((3,) if seed > 1 else (2, 3))
    federation.run_round()
    assert federation.ends["Recovered"] == 2
    assert {each.member for each in federation.twin.survivors} == {*federation.ids} - {*terms.evicted}
