"""Two implementations, one of them from the page alone: random rounds in which each byte of one is a byte of the other.

`REFERENCE_ROUNDS=10000 pytest tests/reference/test_agreement.py` runs more of them and leaves `runs/reference.json`.
"""

import json
import os
import platform
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from protocol.attempt import group_floor
from protocol.causes import Cause
from protocol.coordinator import Recovered
from protocol.messages import Terms
from protocol.simulator import After
from tests.reference import coordinator, reference, wire
from tests.reference.lies import Lie
from tests.reference.lockstep import Lockstep

ROUNDS = int(os.environ.get("REFERENCE_ROUNDS", "200"))
"""In all; a federation lives for `EACH` of them."""
EACH, BATCHES = 5, 8

KINDS = ("dealing", "range", "row", "edge")


@pytest.fixture(autouse=True)
def _remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What twelve members check is checked once: it is one process."""
    monkeypatch.setattr(reference, "decode", lru_cache(1 << 12)(wire.decode))
    monkeypatch.setattr(wire, "signed", lru_cache(1 << 12)(wire.signed))


@pytest.fixture(scope="module")
def figures() -> Iterator[Counter[str]]:
    """Everything counted; of a long run a file is left."""
    counts, began = Counter[str](), time.perf_counter()
    yield counts
    if "REFERENCE_ROUNDS" in os.environ:
        seconds = round(time.perf_counter() - began, 1)
        run = {"rounds": ROUNDS, "python": platform.python_version(), "seconds": seconds}
        path = Path("runs/reference.json")
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({**run, **dict(sorted(counts.items()))}, indent=1) + "\n")


def rounds(seed: int) -> Lockstep:
    """A federation after `EACH` attempts with what may go wrong in them."""
    rng = random.Random(seed)
    n = min(rng.randint(3, 12) for _ in range(3))
    nominees = sorted(rng.sample(range(n), rng.randint(min(n, 4), n))) if rng.random() < 0.3 else ()
    lineage = rng.randbytes(8) if rng.random() < 0.4 else None
    federation = Lockstep(n, seed=seed, decryptors=nominees, lineage=lineage, cap=rng.randint(500, 10_000))
    for number in range(EACH):
        if number == 3 and rng.random() < 0.3:
            federation.enrol(counter=1)
        calm = rng.random() < 0.5
        bits = rng.randint(8, 64)
        terms = federation.terms(
            round(500 ** rng.random()),
            ring_bits=bits,
            chunk_elements=8 * rng.randint(1, 12),
            noise=b"noise" if rng.random() < 0.1 else b"",
        )
        values = np.random.default_rng(rng.getrandbits(32))
        low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        vectors = {member: values.integers(low, high, terms.elements, endpoint=True) for member in federation.ids}
        federation.late = frozenset(each for each in federation.ids if not calm and rng.random() < 0.15)
        federation.drop = {index: rng.choice([*After]) for index in range(n) if not calm and rng.random() < 0.15}
        if n > 3 and rng.random() < 0.3:
            federation.lies = {rng.choice(federation.ids): Lie(rng.choice(KINDS), rng.choice([0, rng.randrange(64)]))}
        named = tuple(member for member in federation.ids if rng.random() < 0.3)
        exceptions = (federation.excepting(named),) if named and rng.random() < 0.2 else ()
        if federation.lineage and rng.random() < 0.6:
            terms = under_an_indicator(federation, rng, terms)
            federation.drop = rng.choice([federation.drop, {}])
        federation.run_round(vectors, terms, exceptions)
    return federation


def large(seed: int) -> Lockstep:
    """A cohort on a sparse graph: a sum, a window that loses more than it may, and half of those lost beside a liar."""
    rng = random.Random(seed)
    n, nominees = rng.randint(201, 215), sorted(rng.sample(range(201), 7)) if seed % 3 == 2 else ()
    federation = Lockstep(n, seed=seed, decryptors=nominees, colluders=1 + seed % 3, loss=5 * (1 + seed % 4))
    ring = reference.by_draw("ring", federation.twin.m)
    place, allowed = rng.randrange(n), federation.manifest.window_dropped_max
    in_a_row = [federation.ids.index((ring * 2)[place + step]) for step in range(allowed + 1)]
    scattered = {index: rng.choice([*After]) for index in rng.sample(range(n), 4)}
    for drop in (scattered, dict.fromkeys(in_a_row, After.OPENING), dict.fromkeys(in_a_row[::2], After.OPENING)):
        federation.drop, federation.lies = drop, {}
        if len(drop) < len(in_a_row):
            federation.lies = {federation.ids[in_a_row[1]]: Lie(rng.choice(KINDS), rng.choice([0, rng.randrange(64)]))}
        federation.run_round(terms=federation.terms(20, ring_bits=rng.randint(16, 64), chunk_elements=8))
    return federation


def under_an_indicator(federation: Lockstep, rng: random.Random, terms: Terms) -> Terms:
    """Terms of a main round after the indicator round; now and then they withhold what they must not."""
    classes, margin = rng.randint(1, 9), rng.choice([0, federation.members // 6, federation.members])
    holding = {member: np.array([rng.randrange(2) for _ in range(classes)]) for member in federation.ids}
    outcome = federation.run_round(holding, federation.terms(classes, statistic="indicator", ring_bits=16))
    if outcome.total is None:
        return terms
    federation.disclose()
    floor = group_floor(federation.manifest) + margin
    rare = tuple(c for c in range(classes) if (outcome.total[c] < floor) == (rng.random() < 0.98))
    phase = federation.phase
    assert isinstance(phase, Recovered)
    indicator, evicted = phase.attempt.context, phase.evicted
    return replace(terms, indicator=indicator, margin=margin, withheld=rare, evicted=evicted)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_both_make_the_same_bytes_of_every_message_and_the_same_sums(batch: int, figures: Counter[str]) -> None:
    each = ROUNDS // EACH // BATCHES
    counts = Counter[str]()
    for seed in range(batch * each, (batch + 1) * each):
        try:
            federation = rounds(seed)
        except Exception as error:
            error.add_note(f"in the federation of seed {seed}")
            raise
        counts += federation.compared + federation.ends
    figures.update(counts)
    assert all(counts[kind] >= each for kind in ("sum", "Upload", "Receipt", "Freeze", "Vote", "Reveal"))
    assert counts["late"] > 0


@pytest.mark.parametrize("seed", range(max(1, ROUNDS // 500)))
def test_both_agree_on_a_sparse_graph(seed: int, figures: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "tree", lru_cache(1 << 12)(wire.tree))
    for module in (coordinator, reference):
        monkeypatch.setattr(module, "survivor", lru_cache(1 << 12)(reference.survivor))
        monkeypatch.setattr(module, "outcome", lru_cache(1 << 12)(wire.outcome))
    federation = large(seed)
    m = federation.manifest
    assert m.degree < len(m.members) - 1
    assert len(m.decryptors) < 40
    assert set(federation.ends) == {"Recovered", "Voided"}
    figures.update({f"sparse {name}": count for name, count in (federation.compared + federation.ends).items()})


@pytest.mark.parametrize("wrong", [-1, 8, 1 << 20])
def test_what_is_no_count_is_refused_alike(wrong: int) -> None:
    federation = Lockstep(7)
    vectors = {member: np.zeros(3, np.int64) for member in federation.ids}
    vectors["member-3"][1] = wrong
    federation.run_round(vectors, federation.terms(3, statistic="indicator"))
    federation.disclose()
    assert [fault.cause for _, fault in federation.faults] == [Cause.DISCLOSURE_INVALID] * 7
    assert {twin.counted[0] for twin in federation.twins.values()} == {b""}


@pytest.mark.parametrize("seed", range(4))
def test_an_indicator_round_is_recounted_alike(seed: int) -> None:
    """Where a dealer of it is false members are shown the proof first, and recount without it."""
    rng, federation = random.Random(seed), Lockstep(7, seed=seed, lineage=bytes(8), withhold=True)
    federation.lies = {"member-3": Lie("dealing", 0)} if seed % 2 else {}
    terms = under_an_indicator(federation, rng, federation.terms(20))
    assert federation.compared["Disclosure"] == 1
    assert federation.compared["Evictions"] == seed % 2
    assert {twin.counted[0] for twin in federation.twins.values()} == {federation.phase.attempt.context}
    assert [len(twin.counted[1]) for twin in federation.twins.values()] == [7 - seed % 2] * 7
    federation.run_round(terms=terms)
    assert federation.ends["Recovered"] == 2
    assert {each.member for each in federation.twin.survivors} == {*federation.ids} - {*terms.evicted}
