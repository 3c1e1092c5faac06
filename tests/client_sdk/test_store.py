"""A member's state on disk."""

import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from random import Random

import pytest

from client_sdk.database import STATE_FILE, StateDatabase
from client_sdk.errors import StateError
from client_sdk.store import Store
from tests.support.consortium import Consortium
from veilsum.protocol.codec import SecretBytes
from veilsum.protocol.member import History


@pytest.fixture
def store(tmp_path: Path) -> Store:
    Store.create(tmp_path, "member-0", held_out=0.0)
    return Store(tmp_path)


def test_a_seal_is_derived_alike_in_every_release(store: Store, tmp_path: Path) -> None:
    """A release that derives another one takes every folder for damaged."""
    _ = store
    with closing(sqlite3.connect(tmp_path / "state" / STATE_FILE)) as database:
        values = database.execute("SELECT name, value FROM sealed ORDER BY name").fetchall()
        [seal] = database.execute("SELECT names FROM seal").fetchone()
    listed = b"".join(b"%s\n%s" % (name.encode(), sha256(value).digest()) for name, value in values)
    assert len(values) > 1
    assert seal == sha256(listed).digest()


def test_a_member_does_not_begin_without_its_state(consortium: Consortium) -> None:
    """Otherwise it would treat every record as free."""
    consortium.enrol()
    consortium.close()
    path = consortium.folder / "member-0/state" / STATE_FILE
    path.unlink()
    with pytest.raises(StateError, match="is missing"):
        consortium.member("member-0")
    assert not path.exists()


def test_a_truncation_or_flipped_byte_is_refused_or_changes_nothing(consortium: Consortium) -> None:
    cohort = bytes.fromhex(consortium.enrol())
    consortium.close()
    folder = consortium.folder / "member-0"
    path = folder / "state" / STATE_FILE

    def known() -> object:
        store = Store(folder)
        try:
            return (
                store.load_phase(cohort),
                store.newest_roster(),
                store.newest_study("study"),
                store.ledger.installation.secret,
            )
        except StateError as error:
            return error

    whole, before = path.read_bytes(), known()
    flipped = (
        whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :] for place in range(0, len(whole), 307)
    )
    refused = 0
    for changed in (*flipped, *(whole[:length] for length in range(0, len(whole), 1_999))):
        path.write_bytes(changed)
        now = known()
        assert now == before or isinstance(now, StateError)
        refused += now != before
    assert refused > 40
    path.write_bytes(whole)
    assert known() == before


NAME = b"\xab" * 32
READERS: dict[str, Callable[[Store], object]] = {
    "roster": Store.newest_roster,
    "study/study": lambda store: store.newest_study("study"),
    f"phase/{NAME.hex()}": lambda store: store.load_phase(NAME),
    "history": lambda store: store.ledger.load_history(),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    "content",
    [b"", b"garbage", b"[[]]", bytes(33), b"\x02\x01" + b"\xff" * 40, b"r\n", b"r\n\x01\x63", b"\xff\n\x01"],
)
def test_what_is_no_state_is_the_folders_fault_and_the_file_is_named(
    store: Store, tmp_path: Path, name: str, content: bytes
) -> None:
    StateDatabase(tmp_path / "state").store_sealed(name, None, content)
    with pytest.raises(StateError, match=f"^{tmp_path}/state/.*Identity.create"):
        READERS[name](store)
    with closing(sqlite3.connect(tmp_path / "state" / STATE_FILE)) as database, database:
        database.execute("UPDATE sealed SET value = CAST(value || x'00' AS BLOB) WHERE name = ?", (name,))
    with pytest.raises(StateError, match=f"^{tmp_path}/state/{STATE_FILE} is damaged .{name}"):
        READERS[name](Store(tmp_path))


def test_a_history_with_more_behind_it_is_refused(store: Store, tmp_path: Path) -> None:
    StateDatabase(tmp_path / "state").store_sealed("history", None, History().encode() + b"\0")
    with pytest.raises(StateError, match="by another release"):
        store.ledger.load_history()


def test_nothing_that_was_replaced_or_erased_is_left_in_the_database(tmp_path: Path, store: Store) -> None:
    """Rows of all sizes are added, moved, grown, shrunk and deleted, because pages may keep copies of moved rows."""
    database, random = StateDatabase(tmp_path / "state"), Random(1)
    now, erased = dict[str, bytes](), list[bytes]()
    with closing(database):
        database.open()
        for _ in range(800):
            fresh = f"phase/{random.randbytes(32).hex()}"
            name = random.choice([*now, fresh]) if random.random() < 0.6 else fresh
            erased += [now.pop(name)] if name in now else []
            if random.random() < 0.1:
                database.erase_sealed(name)
                continue
            now[name] = random.randbytes(32)
            around = (random.randbytes(random.choice([0, 40, 900, 9000])) for _ in range(2))
            database.store_sealed(name, None, now[name].join(around))
    raw = b"".join(path.read_bytes() for path in (tmp_path / "state").iterdir() if path.is_file())
    assert all(secret in raw for secret in now.values())
    assert len(erased) > 300
    assert not any(secret in raw for secret in erased)


def test_a_full_disk_is_no_damage(store: Store, tmp_path: Path, consortium: Consortium) -> None:
    """And what belongs together is not stored in part."""
    with closing(database := store.database):
        database.open()
        with database.read() as opened:
            [pages] = opened.execute("PRAGMA page_count").fetchone()
            opened.execute(f"PRAGMA max_page_count = {pages + 3}")

        def too_much() -> None:
            learned = History(head=b"h" * 32, length=2)
            with database.write():
                store.ledger.store_history(learned, History())
                assert store.ledger.load_history() == learned
                database.store_sealed("phase/00", None, bytes(50_000))

        with pytest.raises(OSError, match="full"):
            too_much()
        assert store.ledger.load_history() == History()
        store.see_roster(consortium.roster)


def test_a_kept_result_that_was_changed_is_the_folders_fault_and_can_be_fetched_anew(
    consortium: Consortium,
) -> None:
    consortium.transcripts = True
    round_id = consortium.open_round(consortium.enrol())
    consortium.together(consortium.contributions(round_id))
    folder = consortium.folder / "member-0/state/results" / round_id
    for name in ("weights.safetensors", "record.json", "transcript.json", "evidence.bin"):
        kept = (folder / name).read_bytes()
        for raw in (
            kept[:-1] + bytes([kept[-1] ^ 1]),
            kept[: len(kept) // 2],
            b"",
            b"garbage",
            b"null",
            b"[]",
        ):
            (folder / name).write_bytes(raw)
            with pytest.raises(StateError, match=f"^{folder} .*record.json"):
                consortium.finish(round_id)
        if name != "evidence.bin":  # evidence is kept once
            (folder / "record.json").unlink()
        else:
            (folder / name).write_bytes(kept)
        assert consortium.finish(round_id).counted


def test_what_an_upload_is_derived_from_is_erased_with_the_first_phase_that_does_not_upload(
    consortium: Consortium,
) -> None:
    cohort, store = bytes.fromhex(consortium.enrol()), consortium.open["member-0"].session.store
    held = store.load_phase(cohort)
    assert held is not None
    store.keep_unsent(cohort, SecretBytes(32), bytes(32))
    store.store_phase(cohort, held.phase, "")
    assert store.load_unsent(cohort) is None


@pytest.mark.parametrize("pack", [b"pack", b""])
def test_a_pack_is_found_once_it_is_kept_and_while_it_is_whole(
    store: Store, tmp_path: Path, pack: bytes
) -> None:
    digest = sha256(pack).hexdigest()
    assert store.load_pack(digest) is None
    store.keep_pack(digest, pack)
    assert store.load_pack(digest) == pack
    (tmp_path / "state/canaries" / digest).write_bytes(b"other")
    assert store.load_pack(digest) is None


def test_the_history_is_the_newest_whatever_the_cohort(store: Store) -> None:
    assert store.ledger.load_history() == History()
    learned = History(head=b"h" * 32, length=2)
    store.ledger.store_history(learned, History())
    assert store.ledger.load_history() == learned
    for other in (History(), History(head=b"i" * 32, length=3)):
        with pytest.raises(StateError):
            store.ledger.store_history(other, History())
    assert store.ledger.load_history() == learned


def test_a_phase_is_stored_with_what_it_learned_or_not_at_all(
    consortium: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    cohort, session = bytes.fromhex(consortium.enrol()), consortium.open["member-0"].session
    held = session.store.load_phase(cohort)
    assert held is not None
    monkeypatch.setattr(Store, "store_phase", stop)
    with pytest.raises(KeyboardInterrupt):
        session.store_phase(
            cohort, held.phase, held.phase.with_history(History(head=b"h" * 32, length=2)), ""
        )
    assert session.store.ledger.load_history() == History()
    assert session.store.load_phase(cohort) == held


def stop(*_: object) -> None:
    raise KeyboardInterrupt


def test_everything_a_member_writes_is_closed_to_others(consortium: Consortium) -> None:
    round_id = consortium.open_round(consortium.enrol())
    steps = consortium.until(consortium.member("member-0").contribute(round_id), "chunks/0")
    home = consortium.folder / "member-0"
    paths = [home, *home.rglob("*")]
    assert any(path.parent.name == "arrays" for path in paths)
    for path in paths:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    steps.close()
    (home / "state").chmod(0o755)
    consortium.together(consortium.contributions(round_id))
    paths = [home, *home.rglob("*")]
    assert any(path.name == "weights.safetensors" for path in paths)
    for path in paths:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
