"""A recording opens nothing with one of the two problems broken, and everything with both."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assurance.recording.keys import KEY_SETS
from assurance.recording.open import Finding, key_sets, main, open_recording
from assurance.recording.record import main as record
from assurance.recording.record import record_federation
from assurance.recording.recorded import load
from veilsum.protocol.codec import SecretBytes
from veilsum.protocol.keys import AgreementKey, PairSecret
from veilsum.protocol.member import enrolled
from veilsum.protocol.tags import PROTOCOL_VERSION


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    return record_federation()


def opens_nothing(finding: Finding) -> bool:
    """Return whether the recorder knows no more than the certified sum, which is published."""
    return finding.boxes_opened == 0 and finding.opened == (finding.survivors,)


def opens_all(finding: Finding) -> bool:
    every_box = finding.boxes_opened == finding.boxes_sent > 0
    return every_box and finding.vectors == finding.sent != ()


@pytest.mark.parametrize("chosen", ["none", "x25519", "mlkem"])
def test_one_broken_problem_opens_nothing(recorded: dict[str, Any], chosen: str) -> None:
    count, summed = open_recording(recorded, chosen)
    assert opens_nothing(count)
    assert opens_nothing(summed)
    # The masks that the decryptors revealed, of the member that disappeared.
    assert (count.pair_seeds, summed.pair_seeds) == (0, 5)
    assert min(count.tried, summed.tried) > 1000


def test_both_broken_problems_open_all(recorded: dict[str, Any]) -> None:
    count, summed = open_recording(recorded, "both")
    assert opens_all(count)
    assert opens_all(summed)
    assert (len(count.sent), len(summed.sent)) == (6, 5)
    assert count.pair_seeds == summed.pair_seeds == 15


def test_a_folder_taken_during_a_round_opens_its_members_boxes_of_that_round(
    recorded: dict[str, Any],
) -> None:
    count, summed = open_recording(recorded, "folder-during")
    assert opens_nothing(count)
    assert summed.vectors == ("member-0",)
    assert [opened for opened, _ in summed.boxes.values()] == [5, 1, 1, 1, 1, 1]
    assert summed.opened[1:] == (("member-1", "member-2", "member-3", "member-4"),)


def test_a_folder_taken_after_a_round_opens_nothing(recorded: dict[str, Any]) -> None:
    assert all(map(opens_nothing, open_recording(recorded, "folder-after")))


@pytest.mark.slow
@pytest.mark.parametrize(("folders", "opened"), [(3, 0), (4, 5)])
def test_a_threshold_of_folders_taken_before_the_result_is_saved_opens_the_round(
    folders: int, opened: int
) -> None:
    count, summed = open_recording(record_federation(folders=folders), "folder-after")
    assert opens_nothing(count)
    assert summed.boxes_opened == 0
    assert len(summed.vectors) == opened


# The opener finds the faults that it looks for: otherwise it would show nothing.

FAULTS: dict[str, tuple[str, Callable[[PairSecret], PairSecret]]] = {
    "the ML-KEM secret is left out": ("x25519", lambda s: s._replace(mlkem=SecretBytes(b""))),
    "the ML-KEM secret is zeros": ("x25519", lambda s: s._replace(mlkem=SecretBytes(bytes(32)))),
    "the ML-KEM secret is the X25519 one": ("x25519", lambda s: s._replace(mlkem=s.x25519)),
    "the ML-KEM secret is the ciphertext's hash": (
        "x25519",
        lambda s: s._replace(mlkem=SecretBytes(s.ciphertext_hash)),
    ),
    "the X25519 secret is left out": ("mlkem", lambda s: s._replace(x25519=SecretBytes(b""))),
    "the X25519 secret is zeros": ("mlkem", lambda s: s._replace(x25519=SecretBytes(bytes(32)))),
    "both are what is public": (
        "none",
        lambda s: s._replace(x25519=SecretBytes(bytes(32)), mlkem=SecretBytes(s.ciphertext_hash)),
    ),
}


SLOW = {"the ML-KEM secret is left out", "the ML-KEM secret is zeros", "the X25519 secret is left out"}
"""Faults that run weekly: with every change, another fault is tried by the same guesses."""


@pytest.mark.parametrize(
    "fault", [pytest.param(each, marks=pytest.mark.slow) if each in SLOW else each for each in FAULTS]
)
def test_a_member_that_mixes_one_secret_only_is_opened(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, put_in = FAULTS[fault]
    derive_root = PairSecret.derive_root
    monkeypatch.setattr(PairSecret, "derive_root", lambda self, *bound: derive_root(put_in(self), *bound))
    assert all(map(opens_all, open_recording(record_federation(), chosen)))


@pytest.mark.parametrize(
    ("chosen", "derive"),
    [
        pytest.param(
            "x25519", lambda private, _: (private, SecretBytes(private + private)), marks=pytest.mark.slow
        ),
        ("x25519", lambda private, _: (private, SecretBytes(hashlib.sha512(private).digest()))),
        pytest.param("mlkem", lambda _, seed: (SecretBytes(seed[:32]), seed), marks=pytest.mark.slow),
        ("mlkem", lambda _, seed: (SecretBytes(hashlib.sha256(seed[32:]).digest()), seed)),
    ],
)
def test_a_private_key_that_is_made_of_the_other_is_found(
    chosen: str, derive: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    private_keys = enrolled.PrivateKeys
    monkeypatch.setattr(enrolled, "PrivateKeys", lambda *drawn: private_keys(*derive(*drawn)))
    assert all(map(opens_all, open_recording(record_federation(), chosen)))


def test_a_member_that_keeps_its_private_keys_is_found(recorded: dict[str, Any]) -> None:
    keys = recorded["keys"].values()
    kept = "00".join("".join(each["x25519"] + each["mlkem"]) for each in keys)
    folders = {"folders": {"careless": {"member-0": kept}}}
    assert all(map(opens_all, open_recording(recorded | folders, "careless")))


def test_an_opened_vector_that_is_not_the_members_own_is_an_error(recorded: dict[str, Any]) -> None:
    vectors = json.loads(json.dumps(recorded["vectors"]))
    for members in vectors.values():
        members["member-1"][0] += 1
    with pytest.raises(ValueError, match="member-1"):
        open_recording(recorded | {"vectors": vectors}, "both")


def test_the_recording_is_of_this_version_and_holds_the_members_keys(recorded: dict[str, Any]) -> None:
    assert recorded["version"] == PROTOCOL_VERSION
    assert key_sets(recorded) == (*KEY_SETS, "folder-during", "folder-after")
    (x25519,) = recorded["keys"]["member-0"]["x25519"]
    public = AgreementKey(bytes.fromhex(x25519)).public.hex()
    assert any(public in each.get("message", "") for each in recorded["traffic"])


def test_it_is_recorded_and_opened_by_commands(tmp_path: Path) -> None:
    record([str(tmp_path / "recording.json.gz")])
    lines = list[str]()
    main([str(tmp_path / "recording.json.gz"), "--keys", "both"], lines.append)
    assert sum("opened 5/5" in line for line in lines) == 11


def test_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ValueError, match="recording"):
        load(tmp_path / "other.json")
