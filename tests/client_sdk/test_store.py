"""State on disk."""

import hashlib
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from client_sdk import files
from client_sdk.errors import PeerFault, StateError
from client_sdk.files import sync_folder, write_durably, write_sealed, write_synced, write_together
from client_sdk.ledger import DATABASE
from client_sdk.result import Result
from client_sdk.store import Store, Unsent
from tests.support.federation import Federation
from veilsum.protocol.member import History


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path)
    made.begin()
    return made


def test_a_member_that_has_enrolled_does_not_begin_without_its_ledger(federation: Federation) -> None:
    """It would take every record for free."""
    federation.enrol()
    federation.close()
    store = Store(federation.folder / "member-0")
    store.begin()
    (federation.folder / "member-0/state/ledger" / DATABASE).unlink()
    with pytest.raises(StateError, match="is missing"):
        store.begin()


def test_of_two_rosters_with_one_number_the_first_seen_counts(store: Store, federation: Federation) -> None:
    store.see_roster(federation.make_roster(2))
    store.see_roster(federation.make_roster(2))
    for other in (federation.make_roster(2, readers=("member-1",)), federation.make_roster(1)):
        with pytest.raises(PeerFault, match=r"^roster-rollback:"):
            store.see_roster(other)
    assert store.roster() == federation.make_roster(2)


def test_every_truncation_and_any_flipped_byte_of_a_phase_is_refused(federation: Federation) -> None:
    cohort = federation.enrol()
    store = federation.open["member-0"].session.store
    path = federation.folder / "member-0/state/phases" / cohort
    whole = path.read_bytes()
    for length in [*range(0, len(whole), 97), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(StateError, match="State loss is a new identity"):
            store.held(bytes.fromhex(cohort))
    for place in range(0, len(whole), 53):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(StateError):
            store.held(bytes.fromhex(cohort))
    path.write_bytes(whole)
    assert store.held(bytes.fromhex(cohort)) is not None


@pytest.mark.parametrize("content", [b"", b"r\n", b"r\n\x01\x63", b"r\n\x01\x02short", b"\xff\n\x01"])
def test_sealed_bytes_that_are_no_phase_are_refused(store: Store, tmp_path: Path, content: bytes) -> None:
    write_sealed(tmp_path / "state/phases" / ("ab" * 32), content)
    with pytest.raises(StateError, match="not of this release"):
        store.held(b"\xab" * 32)


NAME = b"\xab" * 32
READERS: dict[str, Callable[[Store], object]] = {
    "roster.bin": Store.roster,
    "studies/study": lambda store: store.study("study"),
    f"phases/{NAME.hex()}": lambda store: store.held(NAME),
}
SEALS = 16 + 32


def sealed(content: bytes, version: int = 3) -> bytes:
    return f"veilsum-state/{version}\n".encode() + hashlib.sha256(content).digest() + content


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "is damaged"),
        (b"\x00" * 200, "is damaged"),
        (b"garbage", "is damaged"),
        (sealed(b"garbage")[:-1], "is damaged"),
        (sealed(b"garbage")[:SEALS], "is damaged"),
        (sealed(b"garbage", version=1), "is not of this release: go on with the one that wrote it"),
        (sealed(b"garbage", version=3), "is not of this release"),
        (sealed(b""), "is not of this release"),
        (sealed(b"garbage"), "is not of this release"),
        (sealed(b"[[]]"), "is not of this release"),
        (sealed(b'[{"versions": [1]}]'), "is not of this release"),
        (sealed(b'{"versions": 1}'), "is not of this release"),
        (sealed(bytes(33)), "is not of this release"),
        (sealed(b"\x02\x01" + b"\xff" * 40), "is not of this release"),
    ],
)
def test_what_is_no_state_is_the_folders_fault_and_the_file_is_named(
    store: Store, tmp_path: Path, name: str, raw: bytes, why: str
) -> None:
    path = tmp_path / "state" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)
    with pytest.raises(StateError, match=f"^{path} {why}.*make one with Identity.create"):
        READERS[name](store)


def damaged(folder: Path, change: str) -> None:
    with sqlite3.connect(folder / "state/ledger/ledger.sqlite") as database:
        database.execute(f"UPDATE kept SET {change} WHERE name = 'history'")


def test_a_history_that_was_changed_is_refused(store: Store, tmp_path: Path) -> None:
    learned = History(head=b"h" * 32, length=2)
    store.ledger.remember(learned, History())
    damaged(tmp_path, "value = CAST(value || x'00' AS BLOB)")
    with pytest.raises(StateError, match="the ledger's history is damaged"):
        Store(tmp_path).ledger.history()
    more = learned.encode() + b"\0"
    damaged(tmp_path, f"value = x'{more.hex()}', sha256 = x'{hashlib.sha256(more).hexdigest()}'")
    with pytest.raises(StateError, match="not of this release"):
        Store(tmp_path).ledger.history()


def test_a_file_that_no_member_wrote_is_no_cohort(federation: Federation) -> None:
    cohort = bytes.fromhex(federation.enrol())
    (federation.folder / "member-0/state/phases/notes~").write_text("mine")
    store = federation.open["member-0"].session.store
    assert [each for each, _ in store.cohorts()] == [cohort]
    assert not list(store.cohorts(but=cohort))


@pytest.mark.parametrize("name", ["weights.safetensors", "record.json", "transcript.json", "evidence.bin"])
def test_a_kept_result_that_was_changed_is_the_folders_fault_and_can_be_fetched_anew(
    federation: Federation, name: str
) -> None:
    federation.transcripts = True
    round_id = federation.coordinator.open_round(federation.enrol())
    federation.together(federation.contributions(round_id))
    folder = federation.folder / "member-0/state/results" / round_id
    kept = (folder / name).read_bytes()
    for raw in (kept[:-1] + bytes([kept[-1] ^ 1]), kept[: len(kept) // 2], b"", b"garbage", b"null", b"[]"):
        (folder / name).write_bytes(raw)
        with pytest.raises(StateError, match=f"^{folder} .*move its record.json"):
            federation.alone(federation.contributions(round_id, ["member-0"])["member-0"])
    if name != "evidence.bin":  # evidence is kept once
        (folder / "record.json").unlink()
    else:
        (folder / name).write_bytes(kept)
    assert federation.alone(federation.contributions(round_id, ["member-0"])["member-0"]).counted


def test_the_history_is_the_newest_whatever_the_cohort(store: Store) -> None:
    assert store.ledger.history() == History()
    learned = History(head=b"h" * 32, length=2)
    for _ in range(2):
        store.ledger.remember(learned, History())
        assert store.ledger.history() == learned
    for other in (History(), History(head=b"i" * 32, length=3)):
        with pytest.raises(StateError, match="the history has grown since this step began"):
            store.ledger.remember(other, History())
    assert store.ledger.history() == learned


def test_a_phase_half_replaced_when_the_machine_stopped_is_erased(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = federation.enrol()
    cohort, store = bytes.fromhex(name), federation.open["member-0"].session.store
    held = store.held(cohort)
    assert held is not None
    monkeypatch.setattr(Path, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        store.hold(cohort, held.phase, "")
    monkeypatch.undo()
    phases = federation.folder / "member-0/state/phases"
    assert {path.name for path in phases.iterdir()} == {name, f".{name}.new"}
    federation.member("member-0")
    assert [path.name for path in phases.iterdir()] == [name]


def test_a_damaged_cohort_keeps_no_other_from_lapsing(federation: Federation) -> None:
    name = federation.enrol()
    path = federation.folder / "member-0/state/phases" / name
    path.write_bytes(b"damaged")
    federation.open["member-0"].session.store.lapse_others(b"c" * 32, federation.clock.now_s)
    assert path.read_bytes() == b"damaged"


@pytest.mark.parametrize("left", ["{}", ".{}.new"])
def test_what_a_stopped_run_left_of_an_upload_is_removed(federation: Federation, left: str) -> None:
    """Also a seed, and a vector with its noise, that were half written."""
    name = federation.enrol()
    federation.open["member-0"].session.store.unsent(bytes.fromhex(name)).keep(bytes(32), None)
    uploads = federation.folder / "member-0/state/uploads"
    (uploads / name).rename(uploads / left.format(name))
    rows = federation.folder / "member-0/state/ledger/rows"
    (rows / ".1.npz.new").write_bytes(b"half")
    federation.member("member-0")
    assert list(uploads.iterdir()) == []
    assert [path.name for path in rows.iterdir()] == ["1.npz"]


def test_a_machine_that_stops_as_an_attempt_ends_keeps_no_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = Federation(tmp_path, members=5)
    round_id = federation.coordinator.open_round(federation.enrol())
    true = Unsent.clear

    def clear(unsent: Unsent) -> None:
        if "/member-0/" in str(unsent._path):
            raise RuntimeError("the machine stops")
        true(unsent)

    with monkeypatch.context() as patched:
        patched.setattr(Unsent, "clear", clear)
        results = federation.together(federation.contributions(round_id), stuck=federation.expiring(round_id))
    assert [type(result) for result in results.values()].count(Result) == 4, results
    uploads = federation.folder / "member-0/state/uploads"
    assert len(list(uploads.iterdir())) == 1
    assert federation.alone(federation.contributions(round_id, ["member-0"])["member-0"]).counted
    assert list(uploads.iterdir()) == []


def stop(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_write_replaces_the_file_whole_and_closes_it_to_others(tmp_path: Path) -> None:
    path = tmp_path / "file"
    left_over = tmp_path / ".file.new"
    left_over.write_bytes(b"a longer file that a crash left behind")
    left_over.chmod(0o644)
    write_durably(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_files_written_together_are_there_before_the_last_and_none_is_written_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def synced(path: Path, data: bytes | memoryview) -> None:
        done.append(path.name)
        write_synced(path, data)

    def synced_folder(folder: Path) -> None:
        done.append(", ".join(sorted(path.name for path in folder.iterdir())))
        sync_folder(folder)

    monkeypatch.setattr(files, "write_synced", synced)
    monkeypatch.setattr(files, "sync_folder", synced_folder)
    write_together(tmp_path, {"a": b"1", "b": b"2", "gone": None, "whole": b"3"})
    assert done == [".a.new", ".b.new", "a, b", ".whole.new", "a, b, whole"]
    done.clear()
    (tmp_path / "a").chmod(0o644)
    write_together(tmp_path, {"a": b"1", "b": None, "whole": b"3"})
    assert done == [".a.new", "a, whole"]
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600
    done.clear()
    write_together(tmp_path, {"a": b"1", "whole": b"4"})
    assert done == ["a, whole", ".whole.new", "a, whole"]
    assert (tmp_path / "whole").read_bytes() == b"4"


def test_everything_a_member_writes_is_closed_to_others(federation: Federation) -> None:
    round_id = federation.coordinator.open_round(federation.enrol())
    steps = federation.until(federation.contributions(round_id, ["member-0"])["member-0"], "chunks/0")
    home = federation.folder / "member-0"
    paths = [home, *home.rglob("*")]
    assert any("uploads" in str(path) and path.is_file() for path in paths)
    for path in paths:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    steps.close()
    federation.together(federation.contributions(round_id))
    paths = [home, *home.rglob("*")]
    assert any(path.name == "weights.safetensors" for path in paths)
    for path in paths:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
