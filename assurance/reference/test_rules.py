"""Sizes, graphs, committees, covers and refusals of bytes, in both implementations."""

import random
from collections.abc import Sequence
from itertools import takewhile
from types import SimpleNamespace
from typing import Any

import pytest

import veilsum.protocol.disputes
from assurance.reference import coordinator, reference, study
from assurance.reference.coordinator import Coordinator
from assurance.reference.wire import FOLDER, KINDS, H, Refused, decode, encode
from tests.support.simulator import After, Federation, simulated_content, simulated_question
from veilsum.protocol.attempt import cohort_sizes
from veilsum.protocol.causes import Cause
from veilsum.protocol.disputes import Dispute, vertex_cover
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import Entry, Manifest, Roster, parse_message
from veilsum.protocol.study import Content

ANALYSIS = (FOLDER / "analysis.md").read_text("utf-8")

ADMIN = SigningKey(bytes(32))


def content_of(a: int, loss: int) -> Content:
    """Make a study with these assumptions, even if its own rules forbid them."""
    content = simulated_content(simulated_question(12), 10**6)
    question = content.question.model_copy(update={"a": a, "loss": loss, "members_min": 3})
    return content.model_copy(update={"question": question})


def sized(content: Content, **counts: Any) -> Any:
    """Return the reference's `study.sizes` for this study's numbers."""
    question = content.question
    numbers: Any = SimpleNamespace(a=question.a, h=question.h_min, loss=question.loss, members=question.members_min)
    return study.sizes(numbers, **counts)


def cohort(n: int, a: int, loss: int, nominees: Sequence[int], seed: int) -> tuple[Roster, Content, Manifest]:
    """Make a roster of which every ninth member is absent, its study, and `protocol`'s manifest."""
    rng = random.Random(seed)
    ids = [f"m{number:05}" for number in range(n)]
    came = tuple(each for number, each in enumerate(ids) if n < 20 or number % 9)
    roster = Roster.make_signed(
        ADMIN,
        number=1,
        name="",
        federation=ADMIN.public,
        coordinator=ADMIN.public,
        study_key=ADMIN.public,
        members=tuple(Entry(each, rng.randbytes(32)) for each in ids),
        decryptors=tuple(ids[number] for number in nominees),
        readers=(),
        revoked=(),
    )
    content = content_of(a, loss)
    sizes = cohort_sizes(roster, content.question, came, repeats=False)
    root, cohort = rng.randbytes(32), rng.randbytes(32)
    beacon = H("cards", cohort, root)
    quorum = sizes.quorum
    return (
        roster,
        content,
        Manifest(
            cohort=cohort,
            roster_hash=roster.hash,
            counter=0,
            study=bytes(32),
            period="period",
            repeats=bytes(32),
            members=came,
            cards_root=root,
            decryptor_colluders=quorum.decryptor_colluders,
            survivors_min=quorum.survivors_min,
            threshold=quorum.threshold,
            degree=sizes.degree,
            window_dropped_max=sizes.window_dropped_max,
            decryptors=sizes.choose_decryptors(came, roster.decryptors, beacon),
        ),
    )


@pytest.mark.parametrize("n", [3, 4, 7, 19, 60, 200, 226, 500, 1300])
def test_sizes_committee_and_ring(n: int) -> None:
    rng = random.Random(n)
    for seed in range(2):
        nominees = sorted(rng.sample(range(n), max(3, n // 3))) if seed else ()
        a, loss = n // rng.randint(4, 12), rng.choice([0, 50, 100, 250])
        try:
            roster, content, manifest = cohort(n, a, loss, nominees, seed)
        except PeerFault as fault:
            assert fault.cause is Cause.COHORT_TOO_SMALL  # noqa: PT017 - some cohorts are meant to be too small
            continue
        m = decode(manifest.to_bytes(), "Manifest")
        question = content.question
        numbers: Any = SimpleNamespace(a=a, h=question.h_min, loss=loss, members=question.members_min)
        assert m[8:] == reference.computed(decode(roster.to_bytes(), "Roster"), numbers, m)
        graph = manifest.graph
        for member in rng.sample(m.members, min(len(m.members), 5)):
            assert graph.neighbours_of(member) == reference.secrets(m, member)[1:]
        for lost in (0, 1, n // 12, n // 8, n // 4):
            dropped = reference.by_draw("ring", m)[:lost] if seed % 2 else rng.sample(m.members, lost)
            held = not graph.window_excess(dropped, m.D_max)
            assert held == reference.windows_hold(m, [each for each in m.members if each not in dropped])


def test_the_pages_table_of_sizes() -> None:
    lines = ANALYSIS.split("|`n`|`a`|decryptors|")[1].splitlines()[2:]
    table = takewhile(lambda line: line.startswith("|"), lines)
    rows = [[cell.strip().replace(",", "") for cell in line.strip("|").split("|")] for line in table]
    assert len(rows) >= 5
    for n, a, decryptors, a_d, t, q, k, d_max in rows:
        size, how = decryptors.split()
        nominees = int(size) if how == "nominated" else 0
        content = content_of(int(a), 100)
        found = sized(content, n=int(n), roster=int(n), came=nominees, nominees=nominees)
        assert (found[0], *found[2:]) == (int(a_d), int(t), int(k), int(d_max), int(size))
        assert int(q) == int(size) + found[0] - found[2] + 1


def test_the_pages_table_of_small_cohorts() -> None:
    lines = ANALYSIS.split("|`N = n`|`a`|")[1].splitlines()[2:]
    rows = [line.strip("|").split("|") for line in takewhile(lambda line: line.startswith("|"), lines)]
    assert len(rows) >= 6
    for row in rows:
        n, a, n_min, t, q, missing = map(int, row)
        found = sized(content_of(a, 100), n=n, roster=n)
        assert (found[1], found[2], n + found[0] - found[2] + 1, n - found[1]) == (n_min, t, q, missing)


def dropped(
    context: bytes, conflicts: set[frozenset[str]], complaints: set[tuple[str, str]], colluders: int
) -> set[str]:
    """Return the members that the reference coordinator drops, given only the context and a."""
    coordinator = Coordinator.__new__(Coordinator)
    vars(coordinator).update(context=context, study=SimpleNamespace(a=colluders))
    return coordinator.dropped(conflicts, complaints)


@pytest.mark.parametrize("seed", range(40))
def test_who_is_dropped_for_disputes(seed: int) -> None:
    rng = random.Random(seed)
    names = [f"m{number}" for number in range(rng.randint(2, 24))]
    conflicts, complaints = set(), set()
    for _ in range(rng.randint(1, 40)):
        low, high = sorted(rng.sample(names, 2))
        if rng.random() < 0.6:
            conflicts.add((low, high))
        else:
            complaints.add((low, high) if rng.random() < 0.5 else (high, low))
    disputes = [Dispute(Cause.EDGE_DISAGREEMENT, *each) for each in conflicts]
    disputes += [Dispute(Cause.BOX_REFUSED, *each) for each in complaints]
    context, colluders = rng.randbytes(32), rng.randint(1, 6)
    found = dropped(context, {*map(frozenset, conflicts)}, complaints, colluders)
    assert vertex_cover(context, disputes, colluders) == found


@pytest.mark.parametrize(("colluders", "most"), [(4, 10**6), (30, 10**6), (30, 200), (4, 200), (30, 40)])
def test_who_is_dropped_where_liars_are_at_their_worst(
    colluders: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Honest members have more disputes than each liar, and there are triangles.

    Covered: search finished in time, search cut off, and more liars than may collude.
    """
    monkeypatch.setattr(veilsum.protocol.disputes, "SEARCH_WORK_MAX", most)
    monkeypatch.setattr(coordinator, "WORK_MAX", most)
    wide = {(f"c{c}", f"h{w}-{c // w}") for w in range(2, 9) for c in range(8 // w * w)}
    narrow = {(f"t{at}", f"t{at + 1}") for at in range(9)} | {(f"t{at}", f"u{at // 2}") for at in range(10)}
    disputes = [Dispute(Cause.EDGE_DISAGREEMENT, *each) for each in wide | narrow]
    for byte in range(4):
        context = bytes([byte]) * 32
        found = dropped(context, {*map(frozenset, wide | narrow)}, set(), colluders)
        assert vertex_cover(context, disputes, colluders) == found


BEYOND = {"terms-refused", "unknown-member"}
"""Causes for refusing terms, attempts and rosters."""


def messages() -> list[bytes]:
    """Return one message of each kind in a round."""
    seen: dict[str, bytes] = {}
    federation = Federation(5, drop={1: After.RECEIPT, 4: After.UPLOAD})

    def keep(_sender: str, message: object) -> object:
        seen[type(message).__name__] = message.to_bytes()  # type: ignore[attr-defined]
        return message

    federation.tamper = keep  # type: ignore[assignment]
    federation.run_round()
    federation.run_round()
    seen["Roster"], seen["Study"] = federation.roster.to_bytes(), federation.study.to_bytes()
    return list(seen.values())


def test_what_is_refused_as_bytes_is_refused_alike() -> None:
    rng, refusals, corpus = random.Random(0), 0, messages()
    for _ in range(2500):
        data = bytearray(rng.choice(corpus))
        for _ in range(rng.choice([0, 1, 1, 1, 3])):
            data[rng.randrange(min(len(data), rng.choice([2, 100, 1000])))] = rng.choice(
                [0, 1, 45, 255, rng.randrange(256)]
            )
        data = data[: rng.choice([len(data)] * 4 + [rng.randrange(len(data))])] + rng.choice([b""] * 8 + [b"\0"])
        try:
            theirs: str | None = None
            parse_message(bytes(data))
        except PeerFault as fault:
            theirs = fault.cause.value
        try:
            ours: str | None = None
            assert encode(decode(bytes(data), *KINDS)) == data
        except Refused as refused:
            ours = refused.args[0]
        refusals += ours is not None
        # A fault beyond the encoding, which either side may find first.
        assert ours == theirs or theirs in BEYOND, (ours, theirs, data.hex())
    assert refusals > 1000
