"""The ten attacks on studies: what a coordinator, colluders or bad data could gain from the choice of what is summed, and do not."""

from __future__ import annotations

import copy
import secrets
import shutil
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import rfc8785

from calibration.privacy import Mechanism
from client_sdk import reservations
from client_sdk.errors import Misuse
from client_sdk.files import write_durably
from client_sdk.records import Marks, Records, Selection, select
from client_sdk.reservations import Reservations, State
from protocol.boxes import unseal
from protocol.causes import Cause
from protocol.coordinator import Erasing, Freezing, Recovered, Revealing, VoidedByErasure
from protocol.errors import PeerFault
from protocol.member import Ready
from protocol.messages import NOTHING_REVEALED, Certificate, Erased, ErasureRequest, Study
from protocol.rare_classes import check_enough_rows, withheld_classes
from protocol.replay import replay
from protocol.round_spec import RoundSpec
from protocol.simulator import Federation, simulated_content, simulated_question
from protocol.study import Content
from tests.attacks.ledgered import DIM, QUESTION, RECORD_RULES, Ledgered, QuickReservations, rows_of
from veilsum.study.promise import mechanism_of, study_mu
from veilsum.study.vectors import vector

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from protocol.messages import Message

Json = dict[str, Any]
SECRET = b"s" * 32
NOISE = {"epsilon": 8.0, "delta": 1e-6, "unit": "record", "recipe": "sum"}


def whole(**question: Any) -> Json:
    """A study of twelve members, as JSON."""
    content = simulated_content({**simulated_question(12), **QUESTION, **question}, 10**7)
    return content.model_dump(mode="json")


def read(values: Json) -> Content:
    return Content.from_bytes(rfc8785.dumps(values))


def refusal(values: Json) -> str | None:
    """Why the parser refuses a study; None where it takes it."""
    try:
        read(values)
    except PeerFault as fault:
        return fault.detail if fault.cause is Cause.STUDY_REFUSED else fault.cause.value
    return None


def outcomes(federation: Federation) -> set[Cause]:
    """For what members refused on the way."""
    return {fault.cause for member, fault in federation.faults if member != "coordinator"}


def selected(ledger: Reservations, content: Content, data: Records, **noise: Any) -> Selection:
    """The rows that a run of the study would sum, of records that are free."""
    question, marks = content.question, Marks(ledger.secret, b"f" * 32)
    return select(data, question, marks, partial(ledger.free, noisy=question.noise is not None, **noise))


# 1. A lattice that gives rows back, or too few rows


@pytest.mark.parametrize("place", ["", "question", "after", "notes"])
def test_1_no_field_chooses_the_features_lattice(place: str) -> None:
    values = whole()
    (values[place] if place else values)["lattice"] = "features"
    assert refusal(values)


def test_1_exact_sums_are_rounded_to_the_sums_lattice() -> None:
    """The grid is the study's: none is finer than its rows allow, and a study whose grid would be too coarse is refused."""
    values = whole()
    values["question"]["statistics"][0]["lattice"] = "features"
    assert refusal(values)
    values = whole()
    values["question"]["records"]["most"] = 2**22
    detail = refusal(values)
    assert detail is not None
    assert "do not fit a ring" in detail


def test_1_too_few_rows_are_refused_at_signing() -> None:
    """Whatever is signed has 2·dim′ and 50 rows of honest members behind it, and as many numbers as second moments."""
    random, taken = Random(1), 0
    for _ in range(400):
        dim, a = random.choice((1, 2, 8, 30, 64)), random.randint(0, 4)
        size = random.choice((2, 6, 20))
        bias, count = random.random() < 0.5, random.randint(1, 2)
        kinds = [{"kind": "ffc", "bias": bias}, {"kind": "random-features", "size": size, "bandwidth": 1.0}]
        values = whole()
        values["question"] |= {
            "dim": dim,
            "a": max(a, 3),
            "members_min": random.randint(6, 12),
            "statistics": kinds[:count],
            "records": {**RECORD_RULES, "least": random.randint(1, 60), "most": 60},
        }
        if refusal(values) is not None:
            continue
        taken += 1
        question = read(values).question
        least = max(question.a + question.h_min, (question.members_min + question.a) // 2 + 1)
        rows = question.records.least * (least - question.a)
        widths = [dim + bias, size][:count]
        assert rows >= max(50, 2 * max(widths))
        assert rows * dim >= sum(width**2 for width in widths)
    assert 20 < taken < 380


def test_1_a_member_refuses_a_study_with_too_few_rows_whoever_signed_it() -> None:
    federation = Federation(6)
    values = federation.content.model_dump(mode="json")
    values["question"]["records"]["least"] = 1
    study = Study.make(federation.admin, federation=federation.admin.public, content=rfc8785.dumps(values))
    with pytest.raises(PeerFault, match="rows of honest members"):
        federation.use(study)


def test_1_published_classes_have_no_fewer_rows_than_can_be_solved_for() -> None:
    """Random features of few dimensions have more sums than unknowns: where classes are withheld the others must make up for it."""
    values = whole(
        dim=4,
        classes=[f"class-{label}" for label in range(20)],
        statistics=[{"kind": "random-features", "size": 64, "bandwidth": 1.0}],
        records={"least": 400, "most": 500, "least_per_class": 20, "rows_per_id": 1},
        withhold={"margin": 1},
        thin_classes=False,
        members_min=8,
    )
    question = read(values).question
    with pytest.raises(PeerFault, match="64 dimensions need 1024"):
        check_enough_rows(question, [12] + [0] * 19)
    check_enough_rows(question, [12] * 10 + [0] * 10)


# 2. and 3. A second run over the same records


@pytest.fixture
def summed(tmp_path: Path) -> Ledgered:
    """Six members whose records were summed, in period p0."""
    federation = Ledgered.of(tmp_path, 6)
    federation.enrol("p0")
    assert isinstance(federation.run_round().phase, Recovered)
    federation._tell_ending()
    return federation


@pytest.mark.parametrize(
    "change",
    [
        {"h_min": 4, "members_min": 5},
        {"a": 2, "members_min": 6},
        {"loss": 50},
        {"windows": {"enrol": 60, "upload": 60, "answer": 60}},
    ],
)
@pytest.mark.parametrize("period", ["p0", "p1"])
def test_2_another_floor_gives_no_second_sum(summed: Ledgered, change: Json, period: str) -> None:
    """A cohort with another h_min, a or loss would have other survivors: the difference of the sums would be a few members'."""
    summed.use(summed.study_of(**change))
    with pytest.raises(PeerFault) as refused:
        summed.enrol(period)
    assert refused.value.cause is Cause.COHORT_TOO_SMALL
    assert summed.declined == set(summed.ids)


@pytest.mark.parametrize("change", [{"h_min": 4, "members_min": 5}, {"a": 2, "members_min": 6}, {"loss": 50}])
def test_2_nor_does_a_repeat_with_another_floor(summed: Ledgered, change: Json) -> None:
    """The ledger has one question for each extractor; a member without one refuses the opening by clause 8."""
    (context,) = summed.sets
    summed.use(summed.study_of(**change))
    with pytest.raises(Misuse, match="under this extractor before"):
        summed.enrol("p0", context)
    Federation.enrol(summed, "p0", context)
    outcome = Federation.run_round(summed)
    assert outcome.total is None
    assert Cause.REPEAT_MISMATCH in outcomes(summed)


def test_2_the_same_run_in_another_cohort_is_refused(summed: Ledgered) -> None:
    summed.enrol("p0")
    outcome = summed.run_round(terms=summed.terms("sum"))
    assert outcome.total is None
    assert outcomes(summed) >= {Cause.ALREADY_SUMMED}


def test_2_a_repeat_is_the_same_sum(summed: Ledgered) -> None:
    """To the bit, also when the data has changed; under another extractor over the same members and records."""
    (context,) = summed.sets
    first = dict(summed.sent[context])
    for index, member in enumerate(summed.ids):
        summed.data[member] = rows_of(index, first=100)
    summed.enrol("p0", context)
    assert isinstance(summed.run_round().phase, Recovered)
    again = summed.sent[summed.phase.attempt.context]
    assert all(np.array_equal(first[member], again[member]) for member in summed.ids)
    summed._tell_ending()
    for index, member in enumerate(summed.ids):
        summed.data[member] = rows_of(index, dim=3)
    summed.use(summed.study_of(extractor="ab" * 32, dim=3))
    summed.enrol("p0", context)
    other = summed.run_round()
    assert isinstance(other.phase, Recovered)
    assert other.survivors == summed.ids
    assert replay(summed.transcript).findings == ()


def test_3_a_colluder_flips_its_class_bit_between_two_runs(tmp_path: Path) -> None:
    """Its bit decides whether a class is withheld: two runs, one with and one without it, would show the class's few holders."""
    federation = Ledgered.of(tmp_path, 8, margin=1)
    colluder, bits = federation.ids[-1], [1, 0]

    def own_vector(member: str, opened: Any, honest: Any = federation.own_vector) -> Any:
        made = honest(member, opened)
        if member == colluder and opened.attempt.spec.indicator:
            return np.array([bits[0], 1])
        return made

    federation.own_vector = own_vector  # type: ignore[method-assign]
    federation.enrol("p0")
    assert isinstance(federation.run_round().phase, Recovered)
    federation.disclose()
    assert isinstance(federation.run_round().phase, Recovered)
    federation._tell_ending()
    indicator, certified = federation.sets
    bits.reverse()
    # The same run again, in another cohort; the same records in another period.
    federation.enrol("p0")
    assert federation.run_round(terms=federation.terms("indicator")).total is None
    assert Cause.ALREADY_SUMMED in outcomes(federation)
    assert federation.run_round(terms=federation.terms("sum")).total is None
    with pytest.raises(PeerFault, match="cohort-too-small"):
        federation.enrol("p1")
    # The indicator repeated over the same members: its new counts may not be the basis of another sum.
    federation._tell_ending()
    federation.enrol("p0", indicator)
    again = federation.run_round()
    assert isinstance(again.phase, Recovered)
    federation.disclose()
    flipped = federation.phase.attempt.context
    assert federation.counted[flipped].holders != federation.counted[indicator].holders
    federation._tell_ending()
    federation.enrol("p0", certified)
    rare = withheld_classes(federation.content.question, federation.counted[flipped].holders)
    outcome = federation.run_round(terms=federation.terms("sum", indicator=flipped, withheld=rare))
    assert outcome.total is None
    assert Cause.INDICATOR_MISMATCH in outcomes(federation)
    sums = [link for link in federation.links if link.step == "sum" and link.reason == "none"]
    assert len(sums) == 1


# 4. Records that change, and members that leave


def test_4_later_sums_hold_new_ids_only(tmp_path: Path) -> None:
    """Twelve members change a record each, then one withdraws: neither the changed records nor the others are summed again."""
    federation = Ledgered.of(tmp_path, 12)
    federation.enrol("p0")
    first = federation.run_round()
    assert isinstance(first.phase, Recovered)
    federation._tell_ending()
    for index, member in enumerate(federation.ids):
        old, new = rows_of(index), rows_of(index, first=24, count=22)
        features = np.concatenate([old.features, new.features])
        features[0] += 1.0
        federation.data[member] = Records(
            features, np.concatenate([old.labels, new.labels]), [*old.ids, *new.ids]
        )
    federation.data[federation.ids[5]] = rows_of(5)  # it withdraws: it has nothing new
    federation.enrol("p1")
    assert federation.declined == {federation.ids[5]}
    later = federation.run_round()
    assert isinstance(later.phase, Recovered)
    for index, member in enumerate(federation.ids):
        held = federation.held(member, *(f"patient-{index}-{number}" for number in range(46)))
        assert all(len(runs) <= 1 for runs in held.values())
        if member in federation.declined:
            continue
        alone = vector(federation.phase.attempt.spec, *_rows(rows_of(index, first=24, count=22)))
        assert np.array_equal(federation.sent[federation.phase.attempt.context][member], alone)


def _rows(records: Records) -> tuple[Any, Any]:
    return records.features, records.labels


# 5. Studies that differ in one field


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all fields, blocks and lists among them."""
    if path:
        yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in pairs:
        yield from leaves(inner, (*path, name))


def changes_of(value: Any) -> list[Any]:
    """Other values that a field could have."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1, value * 2, 0]
    if isinstance(value, float):
        return [value * 1.5, value / 2]
    if isinstance(value, str):
        return [value[:-1] + ("b" if value.endswith("a") else "a"), "anyone", "mean+sum", "member"]
    if isinstance(value, list):
        return [value[::-1], value[:1], [*value, *value[:1]], [*value, "c"]]
    if value is None:
        return [{"margin": 0}, {"margin": 1}, NOISE, {"samples_per_class": 10, "power": 0.5}]
    return [None]


def changed(values: Json, path: tuple[Any, ...], value: Any) -> Json:
    other = copy.deepcopy(values)
    place = other
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return other


def vectors_of(content: Content, features: Any, labels: Any) -> list[bytes]:
    """What members would send at each step, with noise of one seed."""
    question, sizes = content.question, content.question.smallest
    sent = []
    for step in question.steps[:1] + question.steps[-1:]:
        if question.takes_material(step):
            continue
        spec = RoundSpec(
            content, bytes(32), "p", step, (), sizes.quorum.members, sizes.quorum.survivors_min, 1 << 20
        )
        random = Random(5)
        matrix = features[:, : question.dim] if question.dim <= features.shape[1] else None
        if matrix is None:
            continue
        sent.append(
            vector(spec, matrix, labels, random_bytes=random.randbytes).tobytes()
            + step.encode()
            + bytes([spec.ring_bits])
        )
    return sent


@pytest.mark.parametrize(
    "question",
    [
        {},
        {"withhold": {"margin": 1}, "thin_classes": False, "members_min": 8},
        {
            "statistics": [
                {"kind": "ffc", "bias": True},
                {"kind": "random-features", "size": 4, "bandwidth": 1.0},
            ]
        },
        {"statistics": [{"kind": "ccvr"}]},
        {"noise": NOISE, "ring_bits": 48},
        {"noise": {**NOISE, "recipe": "mean+sum"}, "ring_bits": 48},
    ],
)
def test_5_whatever_changes_a_vector_changes_the_question(question: Json) -> None:
    """A note or what is made of the sums changes no vector; two studies with other vectors have other questions."""
    values = whole(**question)
    rng = np.random.default_rng(3)
    features, labels = rng.standard_normal((40, 4)), rng.integers(0, 4, 40)
    content = read(values)
    honest = vectors_of(content, features, labels)
    taken = 0
    for path in leaves(values):
        value: Any = values
        for name in path:
            value = value[name]
        for other in changes_of(value):
            try:
                found = read(changed(values, path, other))
            except PeerFault:
                continue
            taken += 1
            if path[0] == "question":
                assert found == content or found.question.digest != content.question.digest, path
            else:
                assert found.question.digest == content.question.digest, path
                assert vectors_of(found, features, labels) == honest, path
            kept = path[:2] in {("notes", "version"), ("notes", "expires")}
            assert found == content or (found.approval == content.approval) == kept, path
    assert taken > 20


def test_5_a_record_answers_one_question_of_an_extractor(tmp_path: Path) -> None:
    """Whatever is asked, in whatever order: an id is in one exact run, or in its repeats under other extractors."""
    contents = [
        read(whole(**change))
        for change in (
            {},
            {"h_min": 4, "members_min": 9},
            {"loss": 50},
            {"ring_bits": 48},
            {"statistics": [{"kind": "ffc", "bias": True}]},
            {"extractor": "cd" * 32},
        )
    ]
    for seed in range(12):
        random, ledger = Random(seed), QuickReservations(tmp_path / str(seed))
        for _ in range(12):
            content, period = random.choice(contents), f"p{random.randrange(3)}"
            if ledger.run(content.question.digest, period) is not None:
                continue
            data = rows_of(0, random.randrange(3) * 12, 24)
            ledger.answer(content, period, selected(ledger, content, data))
            held = [run for run in ledger.runs() if run.state is State.RESERVED]
            if held and not random.randrange(4):
                ledger.give_up(random.choice(held))
        with ledger._open() as database:
            twice = database.execute("SELECT record FROM held GROUP BY record HAVING COUNT(*) > 1").fetchall()
        assert not twice


# 6. The same ids again


@pytest.mark.parametrize("shift", [1e-12, 1e-3])
def test_6_records_extracted_again_add_no_rows(summed: Ledgered, shift: float) -> None:
    for index, member in enumerate(summed.ids):
        data = rows_of(index)
        summed.data[member] = Records(data.features + shift, data.labels, data.ids)
    with pytest.raises(PeerFault, match="cohort-too-small"):
        summed.enrol("p1")
    assert summed.declined == set(summed.ids)
    for member in summed.ids:
        run = summed.ledgers[member].run(summed.content.question.digest, "p1")
        assert run is not None
        assert (run.rows, run.taken) == (0, 24)


def test_6_another_extractor_adds_no_rows_but_in_a_repeat(summed: Ledgered) -> None:
    summed.use(summed.study_of(extractor="ab" * 32, dim=3))
    for index, member in enumerate(summed.ids):
        summed.data[member] = rows_of(index, dim=3)
    with pytest.raises(PeerFault, match="cohort-too-small"):
        summed.enrol("p1")
    with pytest.raises(PeerFault, match="cohort-too-small"):
        summed.enrol("p0")


# 7. Poisoned records


def poisons() -> dict[str, Records]:
    """What is wrong with a member's data, beside rows that are right."""
    clean = rows_of(0)
    first = clean.features[:1]
    return {
        "NaN": _with(first * np.nan, [0], ["n"]),
        "infinity": _with(first * np.inf, [0], ["n"]),
        "unknown label": _with(first, [7], ["n"]),
        "negative label": _with(first, [-3], ["n"]),
        "duplicate id": _with(first, [0], ["patient-0-0"]),
        "spent id": _with(first, [0], ["spent"]),
        "most + 1": _with(first, [0], ["n"]),
        "zero row": _with(first * 0, [0], ["n"]),
        "huge row": _with(np.full((1, DIM), 1e300), [0], ["n"]),
        "one class": Records(clean.features, np.zeros(24, int), clean.ids),
        "fewest rows": rows_of(0, count=20),
    }


def _with(features: Any, labels: list[int], ids: list[str]) -> Records:
    clean = rows_of(0)
    return Records(np.concatenate([clean.features, features]), [*clean.labels, *labels], [*clean.ids, *ids])


@pytest.mark.parametrize(
    "settings",
    [{}, {"margin": 1}, {"question": {"noise": NOISE, "ring_bits": 48}}],
    ids=["exact", "withholding", "noisy"],
)
def test_7_poisoned_records_change_no_message(tmp_path: Path, settings: Json) -> None:
    """Type, order and length of all messages, everybody's, are those of a member whose records are clean."""

    def run(name: str, data: Records) -> dict[str, list[tuple[str, int]]]:
        federation = Ledgered.of(tmp_path / name, 5, **settings)
        # One id was spent before, in a run of this member alone.
        ledger, question = federation.ledgers["member-0"], federation.content.question
        spent = Records(rows_of(0, 500, 24).features, [0, 1] * 12, ["spent", *rows_of(0, 500, 23).ids])
        found = select(spent, question, federation.marks("member-0"), set)
        ledger.answer(federation.content, "before", found, mu=2.0)
        federation.data["member-0"] = data
        federation.enrol("p0")
        assert not federation.declined
        while federation.next_step() is not None:
            assert isinstance(federation.run_round().phase, Recovered)
            if federation.phase.attempt.spec.indicator:
                federation.disclose()
        return federation.sizes

    clean = run("clean", rows_of(0))
    grid = poisons()
    if settings:
        grid = {name: grid[name] for name in ("NaN", "spent id", "most + 1", "one class")}
    if "question" in settings:
        grid["empty"] = Records(np.zeros((0, DIM)), np.zeros(0, int), [])
        grid["one row"] = rows_of(0, count=1)
    for number, (name, data) in enumerate(grid.items()):
        assert run(str(number), data) == clean, name


def test_7_data_that_changes_after_the_yes_changes_no_message(tmp_path: Path) -> None:
    """Once enrolled a member uploads what it reserved, also when its data is gone."""
    federation = Ledgered.of(tmp_path, 5)
    federation.enrol("p0")
    federation.data.clear()
    outcome = federation.run_round()
    assert isinstance(outcome.phase, Recovered)
    expected = vector(federation.phase.attempt.spec, *_rows(rows_of(0)))
    assert np.array_equal(federation.sent[federation.phase.attempt.context]["member-0"], expected)


# 8. Crashes and restored copies


class CutError(Exception):
    """The plug was pulled."""


def test_8_a_crash_at_any_durable_write_leaves_the_same_rows_and_vector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Selecting, reserving and computing again after the plug was pulled gives the same bytes, or nothing was stored."""
    content = read(whole())
    spec = RoundSpec(content, bytes(32), "p0", "sum", (), 12, 8, 1 << 20)

    def take(ledger: QuickReservations) -> tuple[bytes, ...]:
        run = ledger.run(content.question.digest, "p0")
        if run is None:
            run = ledger.answer(content, "p0", selected(ledger, content, rows_of(0, count=40)))
        kept = ledger.vector(run, "sum")
        if kept is None:
            features, labels, _ = ledger.rows(run)
            ledger.keep_vector(run, "sum", kept := vector(spec, features, labels))
        again = ledger.vector(run, "sum")
        assert again is not None
        return tuple(part.tobytes() for part in (*ledger.rows(run), kept, again))

    monkeypatch.setattr(secrets, "token_bytes", lambda count: SECRET[:count])
    wanted = take(QuickReservations(tmp_path / "whole"))
    for cut in range(2):
        for how in ("before", "torn", "after"):
            folder, writes = tmp_path / f"{cut}-{how}", iter(range(100))

            def failing(path: Path, data: Any, cut: int = cut, how: str = how, writes: Any = writes) -> None:
                if next(writes) != cut:
                    return write_durably(path, data)
                if how != "before":
                    write_durably(path, data[: len(data) // 2] if how == "torn" else data)
                raise CutError

            monkeypatch.setattr(reservations, "write_durably", failing)
            with pytest.raises(CutError):
                take(QuickReservations(folder))
            monkeypatch.setattr(reservations, "write_durably", write_durably)
            assert take(QuickReservations(folder)) == wanted, (cut, how)


def test_8_a_restored_ledger_selects_the_same_rows(tmp_path: Path) -> None:
    """An old copy of the state gives the same subset again, not another one."""
    ledger = QuickReservations(tmp_path / "now")
    secret = ledger.secret
    shutil.copytree(tmp_path / "now", tmp_path / "backup")
    content, data = read(whole()), rows_of(0, count=60)
    runs = []
    for name in ("now", "backup"):
        restored = QuickReservations(tmp_path / name)
        assert bytes(restored.secret) == bytes(secret)
        run = restored.answer(content, "p0", selected(restored, content, data))
        runs.append(tuple(part.tobytes() for part in restored.rows(run)))
    assert runs[0] == runs[1]


def test_8_a_restart_at_every_message_changes_no_byte(tmp_path: Path) -> None:
    """Members that are stored and loaded before each message say the very same."""

    def said(folder: Path, *, restart: bool) -> list[bytes]:
        heard: list[bytes] = []

        def note(sender: str, message: Message) -> Message:
            if ">" not in sender:
                heard.append(sender.encode() + message.to_bytes())
            return message

        federation = Ledgered.of(folder, 5, restart=restart, tamper=note)
        for index, member in enumerate(federation.ids):
            federation.ledgers[member].__dict__["secret"] = bytes([index]) * 32
        federation.enrol("p0")
        assert isinstance(federation.run_round().phase, Recovered)
        return heard

    assert said(tmp_path / "a", restart=True) == said(tmp_path / "b", restart=False)


# 9. Erasure


@pytest.mark.parametrize("members", [4, 5, 6, 8])
def test_9_an_erasure_and_a_sum_exclude_each_other(members: int) -> None:
    """However many decryptors reveal before the latest end, and though colluders report that they did not."""
    for revealed in range(members + 1):
        federation = Federation(members)
        federation.begin()
        phase = federation.run_until(Revealing)
        assert isinstance(phase, Revealing)
        quorum, liars = phase.attempt.quorum, federation.ids[: federation.content.question.a]
        certificate = phase.certificate
        told = federation.ids[:revealed]
        for member in told:
            federation._tell(member, certificate)
        federation.now_s = phase.attempt.terms.latest_end_s
        erasing: Any = phase.overdue()
        assert isinstance(erasing, Erasing)
        silent = 0
        for member in federation.ids:
            if isinstance(erasing, VoidedByErasure):
                break
            (report,) = federation._tell(member, ErasureRequest(phase.attempt.context))
            assert isinstance(report, Erased)
            assert (report.revealed != NOTHING_REVEALED) == (member in told)
            if member in liars:
                values = {"context": report.context, "member": member, "revealed": NOTHING_REVEALED}
                report = Erased.make(federation.keys[member], **values)
            silent += report.revealed == NOTHING_REVEALED
            erasing = erasing.receive(report, federation.now_s)
        erased = isinstance(erasing, VoidedByErasure)
        assert erased == (silent >= quorum.erasures_min)
        # Colluders' shares are known whether they revealed or not.
        assert not (erased and len({*told, *liars}) >= quorum.threshold)


def test_9_a_replayed_box_does_not_open_after_erasure() -> None:
    """Neither is it taken, nor do the keys that are left open it."""
    federation = Federation(5)
    federation.begin()
    phase: Any = federation.run_until(Freezing)
    assert isinstance(phase, Freezing)
    attempt, victim = phase.attempt, "member-0"
    shelf, place = phase.setting.shelf, attempt.decryptor_place[victim]
    deliveries = [shelf.delivery(dealer, place) for dealer in phase.uploads if dealer != victim]
    held: Any = federation.phases[victim]
    keys = {pair.peer: pair for pair in held.ready.boxes}
    opened = deliveries[0]
    key = keys[opened.member].box_key(opened.member, victim, attempt.context, opened.header.salt)
    assert unseal(key, opened.box, attempt.context, opened.member)
    federation.now_s = attempt.terms.latest_end_s
    erasing: Any = phase.overdue()
    (report,) = federation._tell(victim, erasing.request_for(victim))
    assert isinstance(report, Erased)
    after = federation.phases[victim]
    assert isinstance(after, Ready)
    bytes_left = after.to_bytes()
    assert not any(bytes(pair.key) in bytes_left for pair in keys.values())
    assert not any(bytes(dealt.shares) in bytes_left for dealt in held.held())
    for message in (
        attempt.opening,
        phase.proposal,
        Certificate(attempt.context, phase.survivors, "none", ()),
    ):
        assert federation._tell(victim, message) == ()
    for pair in after.boxes:
        later = pair.box_key(opened.member, victim, attempt.context, opened.header.salt)
        with pytest.raises(PeerFault):
            unseal(later, opened.box, attempt.context, opened.member)


# 10. Noise


def noiseless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mechanism, "add_noise", lambda *_: None)


@pytest.mark.parametrize("unit", ["record", "member"])
@pytest.mark.parametrize(
    "statistic",
    [
        {"kind": "ffc", "bias": True},
        {"kind": "ccvr"},
        {"kind": "random-features", "size": 6, "bandwidth": 1.0},
    ],
    ids=lambda each: each["kind"],
)
def test_10_one_id_moves_a_noisy_vector_by_no_more_than_delta(
    unit: str, statistic: Json, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the member has more rows than `most`, and ids with more rows than `rows_per_id`."""
    noiseless(monkeypatch)
    records = {"least": 1, "most": 12, "least_per_class": 1, "rows_per_id": 3}
    content = read(
        whole(statistics=[statistic], records=records, noise={**NOISE, "unit": unit}, ring_bits=48)
    )
    question = content.question
    sizes = question.smallest.quorum
    ledger = QuickReservations(tmp_path)
    marks = Marks(ledger.secret, b"f" * 32)
    rng = np.random.default_rng(8)
    ids = np.array([f"id-{number}" for number in rng.integers(0, 9, 40)])
    features, labels = (
        rng.standard_normal((40, DIM)) * 10.0 ** rng.integers(-3, 4, (40, 1)),
        rng.integers(0, 3, 40),
    )
    features[3] = np.nan
    features[:12] = features[:1] if np.isfinite(features[0]).all() else 1.0  # rows that point one way add up

    for step in question.steps:
        spec = RoundSpec(content, bytes(32), "p", step, (), sizes.members, sizes.survivors_min, 1 << 20)
        mechanism = mechanism_of(spec)
        weights = mechanism.release.weights(mechanism.lattice)

        def sent(keep: Any, spec: RoundSpec = spec) -> Any:
            data = Records(features[keep], labels[keep], ids[keep].tolist())
            found = select(data, question, marks, set)
            return vector(spec, found.features, found.labels)

        whole_vector = sent(np.ones(40, bool))
        assert whole_vector.any()
        if unit == "member":
            assert np.linalg.norm(whole_vector * weights) <= mechanism.sensitivity * (1 + 1e-12)
            continue
        for each in sorted(set(ids)):
            moved = (whole_vector - sent(ids != each)) * weights
            assert np.linalg.norm(moved) <= mechanism.sensitivity * (1 + 1e-12), each


def test_10_charges_stay_within_the_budget(tmp_path: Path) -> None:
    """Over all studies √Σμ² of a record is within its owner's budget; a run that is given up costs nothing; retries cost nothing."""
    budget, ledger = 2.0, QuickReservations(tmp_path)
    data = rows_of(0)
    answered = []
    for number, epsilon in enumerate((6.0, 3.0, 7.0, 5.0, 4.0, 6.0, 8.0)):
        content = read(whole(noise={**NOISE, "epsilon": epsilon}, ring_bits=48))
        assert content.question.noise is not None
        mu = study_mu(content.question.noise)
        found = selected(ledger, content, data, mu=mu, mu_budget=budget)
        answered.append(ledger.answer(content, f"p{number}", found, mu=mu))
        if number == 1:
            ledger.give_up(answered[-1])
        with ledger._open() as database:
            charges = database.execute(
                "SELECT SUM(mu * mu) FROM held JOIN run ON run.id = held.run GROUP BY record"
            ).fetchall()
        assert all(charge**0.5 <= budget for (charge,) in charges)
    assert any(run.rows == 0 for run in answered)
    exact = selected(ledger, read(whole()), data)
    assert len(exact.labels) == 0


def test_10_a_chain_costs_what_its_study_says() -> None:
    for recipe in ("sum", "mean+sum", "mean+sum+refinement", "mean+gradients"):
        content = read(whole(noise={**NOISE, "recipe": recipe}, ring_bits=48))
        question = content.question
        assert question.noise is not None
        quorum = question.smallest.quorum
        steps = [
            mechanism_of(
                RoundSpec(content, bytes(32), "p", step, (), quorum.members, quorum.survivors_min, 1 << 20)
            ).mu
            for step in question.steps
        ]
        assert sum(mu**2 for mu in steps) ** 0.5 <= study_mu(question.noise) * (1 + 1e-12)


def test_10_a_step_is_certified_once_and_never_repeated(tmp_path: Path) -> None:
    federation = Ledgered.of(tmp_path, 5, question={"noise": NOISE, "ring_bits": 48})
    federation.enrol("p0")
    assert isinstance(federation.run_round().phase, Recovered)
    federation._tell_ending()
    (context,) = federation.sets
    federation.enrol("p0")
    assert federation.run_round(terms=federation.terms("sum")).total is None
    assert Cause.ALREADY_SUMMED in outcomes(federation)
    Federation.enrol(federation, "p0", context)
    assert not any(
        isinstance(phase, Ready) and phase.manifest.repeats == context for phase in federation.phases.values()
    )
    assert Cause.TERMS_REFUSED in outcomes(federation)
