"""Identities' keys on disk."""

import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk.database import STATE_FILE, StateDatabase
from client_sdk.errors import IdentityError, Misuse, StateError
from client_sdk.identity import Identity
from client_sdk.member import Member
from client_sdk.policy import Policy
from client_sdk.session import ready_of
from client_sdk.store import Store
from tests.support.consortium import Consortium
from tests.support.machine import files_open_in
from veilsum.protocol.study import HELD_OUT_SHARE
from veilsum.system.files import make_private


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_an_identity_is_created_and_loaded(tmp_path: Path) -> None:
    made = Identity.create(tmp_path / "new/home", "hospital-3")
    loaded = Identity.load(tmp_path / "new/home")
    assert (loaded.member, loaded.public) == ("hospital-3", made.public)
    assert loaded.key.sign(b"x") == made.key.sign(b"x")
    assert loaded.fingerprint.replace(" ", "") == made.public.hex()
    assert mode(loaded.folder) == 0o700
    assert {mode(path) for path in loaded.folder.rglob("*")} == {0o600, 0o700}


def test_an_identity_is_never_overwritten(tmp_path: Path) -> None:
    first = Identity.create(tmp_path, "m")
    with pytest.raises(IdentityError, match="already"):
        Identity.create(tmp_path, "m")
    (tmp_path / "identity.key").unlink()
    with pytest.raises(IdentityError, match="already"):
        Identity.create(tmp_path, "m")
    assert first.public


def test_of_two_processes_that_make_an_identity_in_one_folder_the_first_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, create = list[Identity](), Store.create

    def create_after_another(*given: Any) -> None:
        monkeypatch.undo()
        made.append(Identity.create(tmp_path, "m"))
        create(*given)

    monkeypatch.setattr(Store, "create", create_after_another)
    with pytest.raises(IdentityError, match="already"):
        Identity.create(tmp_path, "m")
    assert Identity.load(tmp_path).public == made[0].public


def test_a_state_that_another_process_makes_meanwhile_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store.create(tmp_path, "m")
    state = (tmp_path / "state" / STATE_FILE).read_bytes()
    monkeypatch.setattr(StateDatabase, "is_made", False)  # as this process saw it
    with pytest.raises(Misuse, match="another process"):
        Store.create(tmp_path, "m")
    assert (tmp_path / "state" / STATE_FILE).read_bytes() == state


@pytest.mark.parametrize(
    ("there", "missing"), [("identity.key", "identity.json"), ("identity.json", "identity.key")]
)
def test_half_an_identity_is_named_with_what_to_do(tmp_path: Path, there: str, missing: str) -> None:
    Identity.create(tmp_path, "m")
    (tmp_path / missing).unlink()
    with pytest.raises(IdentityError, match="load it with"):
        Identity.create(tmp_path, "m")
    with pytest.raises(IdentityError, match=f"{missing} .*remove {tmp_path / there} "):
        Identity.load(tmp_path)
    (tmp_path / there).unlink()
    assert Identity.create(tmp_path, "m").member == "m"


def test_new_folders_are_durable_with_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda opened: synced.append(Path(f"/proc/self/fd/{opened}").readlink()))
    Identity.create(tmp_path / "new/home", "m")
    assert {tmp_path, tmp_path / "new", tmp_path / "new/home"} <= {*synced}
    synced.clear()
    assert make_private(tmp_path / "new") == tmp_path / "new"
    assert synced == []


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o660, 0o644, 0o601])
def test_a_key_that_others_may_read_is_refused(tmp_path: Path, bits: int) -> None:
    Identity.create(tmp_path, "m")
    key = tmp_path / "identity.key"
    key.chmod(bits)
    with pytest.raises(IdentityError, match=f"chmod 600 {key}"):
        Identity.load(tmp_path)
    key.chmod(0o400)
    assert Identity.load(tmp_path).member == "m"


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("identity.key", "not hexadecimal", "damaged"),
        ("identity.key", "ab" * 31, "damaged"),
        ("identity.key", "ab" * 32, "does not belong"),
        ("identity.json", "[]", "damaged"),
        ("identity.json", "{", "damaged"),
        ("identity.json", '{"member": "m"}', "damaged"),
    ],
)
def test_damaged_files_are_refused_without_showing_them(
    tmp_path: Path, name: str, content: str, match: str
) -> None:
    Identity.create(tmp_path, "m")
    (tmp_path / name).write_text(content)
    with pytest.raises(IdentityError, match=match) as caught:
        Identity.load(tmp_path)
    assert content not in str(caught.value)
    assert "from a backup" in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_card_with_another_id_is_refused(tmp_path: Path) -> None:
    Identity.create(tmp_path, "m")
    card = json.loads((tmp_path / "identity.json").read_text())
    (tmp_path / "identity.json").write_text(json.dumps({**card, "member": "../m"}))
    with pytest.raises(IdentityError, match="does not belong"):
        Identity.load(tmp_path)


def test_one_user_at_a_time(tmp_path: Path) -> None:
    identity = Identity.create(tmp_path, "m")
    identity.lock().release()
    assert not files_open_in(tmp_path)
    lock = identity.lock()
    with pytest.raises(IdentityError, match="another process"):
        identity.lock()
    assert len(files_open_in(tmp_path)) == 1, "a lock that is refused closes its file"
    script = f"from client_sdk import Identity; Identity.load({str(tmp_path)!r}).lock()"
    other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "another process" in other.stderr
    for path in [each for each in tmp_path.iterdir() if each.is_file()]:
        content = path.read_bytes()
        path.unlink()
        with pytest.raises(IdentityError):
            Identity.load(tmp_path).lock()
        path.write_bytes(content)
        path.chmod(0o600)
    lock.release()
    lock.release()
    identity.lock().release()


def test_a_lock_is_void_once_its_file_is_removed_or_replaced(tmp_path: Path) -> None:
    card = tmp_path / "identity.json"
    with Identity.create(tmp_path, "m").lock() as lock:
        lock.check_lock()
        content = card.read_bytes()
        card.unlink()
        for _ in range(2):
            with pytest.raises(IdentityError):
                lock.check_lock()
            card.write_bytes(content)


def test_a_new_identity_takes_over_the_ledger_of_a_lost_one(consortium: Consortium, tmp_path: Path) -> None:
    consortium.run(consortium.enrol())
    consortium.enrol("p2")
    consortium.close()
    old, new = consortium.folder / "member-0", tmp_path / "new"
    with Identity.load(old).lock(), pytest.raises(IdentityError, match="another process"):
        Identity.create(new, "member-0", ledger=old)
    kept = shutil.copytree(old, tmp_path / "kept")
    with closing(sqlite3.connect(old / "state" / STATE_FILE)) as damaged, damaged:
        damaged.execute("DELETE FROM sealed WHERE name GLOB 'phase/*'")
    with pytest.raises(StateError, match="is damaged"):
        Store(old).newest_roster()
    (old / "identity.json").unlink()  # lost too
    Identity.create(new, "member-0", ledger=old)
    before, after = Store(kept).ledger, Store(new).ledger
    keys = [bytes(pair.key) for _, held in Store(kept).stored_phases() for pair in ready_of(held.phase).masks]
    assert keys
    assert after.list_runs() == before.list_runs()
    assert after.installation == before.installation
    assert after.load_history() == before.load_history()
    for run in after.list_runs():
        assert np.array_equal(after.load_rows(run)[0], before.load_rows(run)[0])
    assert after.load_vector(after.list_runs()[0], "sum") is not None
    assert {path.stat().st_mode & 0o777 for path in new.rglob("*") if path.is_file()} == {0o600}
    carried = b"".join(path.read_bytes() for path in new.rglob("*") if path.is_file())
    assert not list(Store(new).database.sealed_names("phase"))
    assert not [key for key in keys if key in carried]
    with pytest.raises(StateError, match=r"state.sqlite is missing"):
        Store(old).database.open()
    with closing(Store(new).database) as opened:
        opened.open()
    for ledger in (tmp_path / "nothing", new):
        with pytest.raises(Misuse, match="exist"):
            Store.create(new, "member-0", ledger)
    with pytest.raises(Misuse, match="does not exist"):
        Identity.create(tmp_path / "third", "member-0", ledger=tmp_path / "nothing")


def test_a_ledger_keeps_its_member_id(tmp_path: Path) -> None:
    """Under another id its uploads would count as left out of every certified set, and their records as free."""
    old, new = tmp_path / "old", tmp_path / "new"
    Identity.create(old, "m")
    with pytest.raises(Misuse, match="clinic"):
        Identity.create(new, "clinic", ledger=old)
    for name in ("identity.key", "identity.json"):
        (old / name).unlink()
    with pytest.raises(Misuse, match="clinic"):
        Identity.create(old, "clinic")
    assert not (old / "identity.key").exists()
    identity = Identity.create(old, "m")
    with pytest.raises(Misuse, match="clinic"):
        Member("http://localhost", Identity(old, "clinic", identity.key), Policy(admin_key=bytes(32)))
    Identity.create(new, "m", ledger=old)
    assert Store(new).ledger.installation.member == "m"


def test_the_held_out_share_is_chosen_once(tmp_path: Path) -> None:
    first, second, third = tmp_path / "first", tmp_path / "second", tmp_path / "third"
    Identity.create(first, "m")
    assert Store(first).ledger.installation.held_out_share == HELD_OUT_SHARE == 0.1
    Identity.create(second, "m", held_out=0.25)
    assert Store(second).ledger.marks_in(b"f" * 32).held_out_share == 0.25
    for share in (1.0, -0.1, float("nan")):
        with pytest.raises(Misuse, match="held_out: got"):
            Identity.create(third, "m", held_out=share)
    with pytest.raises(Misuse, match="leave out held_out"):
        Identity.create(third, "m", ledger=second, held_out=0.5)
    Identity.create(third, "m", ledger=second)
    assert Store(third).ledger.installation.held_out_share == 0.25


@pytest.mark.parametrize("step", ["first rename", "copy", "last rename", "key"])
def test_a_ledger_is_never_in_two_identities_whatever_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Also if the old identity has lost its other state."""
    old, new = tmp_path / "old", tmp_path / "new"
    Identity.create(old, "m")
    secret, renames, rename = Store(old).ledger.installation.secret, [], Path.rename
    Store(old).database.store_sealed("card", None, b"card")
    with closing(sqlite3.connect(old / "state" / STATE_FILE)) as damaged, damaged:
        damaged.execute("DELETE FROM sealed WHERE name = 'card'")

    def interrupted(*_: object) -> bytes:
        raise OSError("No space left on device")

    def counted(path: Path, target: Path) -> Path:
        renames.append(target)
        return interrupted() if len(renames) == (1 if step == "first rename" else 2) else rename(path, target)  # type: ignore[return-value]

    with monkeypatch.context() as patched:
        if step == "copy":
            patched.setattr("client_sdk.database._seal_of", interrupted)
        elif step == "key":
            patched.setattr("client_sdk.identity.make_durably", interrupted)
        else:
            patched.setattr(Path, "rename", counted)
        with pytest.raises(OSError, match="No space"):
            Identity.create(new, "m", ledger=old)
    with pytest.raises(Misuse):
        Identity.create(tmp_path / "third", "m", ledger=old)
    Identity.create(new, "m", ledger=old)
    assert Store(new).ledger.installation.secret == secret
    with pytest.raises(StateError, match=r"state.sqlite is missing"):
        Store(old).database.open()
