"""Attacks on approval: a member takes part in exactly what it reads and approves, whatever the coordinator says about it."""

from __future__ import annotations

import itertools
import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
import rfc8785
import typer

from assurance.attacks.studies import NOISE, read, refusal, whole
from client_sdk import Policy, Records
from client_sdk.store import Store
from veilsum.cli.admin import Draft
from veilsum.cli.commands.member import _approve_studies
from veilsum.protocol.counting import check_counts
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.rest import StudyView
from veilsum.protocol.study import DAY_S, Content
from veilsum.study import draft
from veilsum.study.explain import explain_study
from veilsum.study.signed import check_signable

if TYPE_CHECKING:
    from pathlib import Path

ADMIN = SigningKey(bytes(32)).public
FAR_S = 2_000_000_000_000
CONTROLS = [
    *map(chr, (0, 0x1B, 0x7F, 0x85, 0x9B, 0x200E, 0x2028, 0x2029, 0x202E, 0x2066, 0x2069)),
    "\n",
    "\x1b[2J",
]


def named(name: str, **question: Any) -> Content:
    """Make a study with another name."""
    values = whole(**question)
    values["notes"]["name"] = name
    return read(values)


def said(content: Content) -> str:
    """Return the whole explanation of a study that members are shown."""
    return " ".join(sentence for section in explain_study(content) for sentence in section.sentences)


class Shown:
    """A member to which the coordinator shows one study, with its own claims about it."""

    def __init__(self, content: Content, **lies: Any) -> None:
        words = {
            "study": "ab" * 32,
            "name": content.notes.name,
            "version": content.notes.version,
            "question": content.question.digest.hex(),
            "approval": content.approval.hex(),
            "expires_s": FAR_S,
            "revoked": False,
        }
        self.content, self.view = content, StudyView.model_validate(words | lies)

    def studies(self) -> tuple[StudyView, ...]:
        return (self.view,)

    def study(self, study: str) -> Content:
        """Return the study as `Member.study` does: checked against its hash and the study key's signature."""
        assert study == self.view.study
        return self.content


def approved(folder: Path, shown: Shown, *given: str) -> set[bytes | str]:
    """Return what `veilsum member join --approve …` agrees to, and stores for later runs."""
    policy = Policy(ADMIN, approved=given)
    if not (folder / "state").exists():
        Store.create(folder, "hospital-a")
    agreed = _approve_studies(shown, policy, Records([[1.0]], [0]), Store(folder))  # type: ignore[arg-type]
    path = folder / "approvals.json"
    return {*agreed, *(json.loads(path.read_text()) if path.exists() else ())}


@pytest.fixture
def prompts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record what a member at a terminal is asked; it always says yes."""
    asked: list[str] = []

    def yes(text: str, **_: Any) -> bool:
        asked.append(text)
        return True

    for stream in (sys.stdin, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr(typer, "confirm", yes)
    return asked


# The coordinator's words about a study


def test_a_yes_to_one_study_approves_no_other(tmp_path: Path, prompts: list[str]) -> None:
    harmless, other = named("harmless"), named("other")
    agreed = approved(tmp_path, Shown(harmless, approval=other.approval.hex(), name="other\x1b[2J\x1b[1A"))
    assert agreed == {harmless.approval.hex()}
    assert [("harmless" in prompt, "other" in prompt) for prompt in prompts] == [(True, False)]


@pytest.mark.parametrize("by", ["digest", "name"])
def test_an_approval_is_for_what_was_signed_under_it(tmp_path: Path, by: str) -> None:
    digest = named("wanted").approval.hex()
    name, lie = {"digest": ("other", {"approval": digest}), "name": (digest, {})}[by]
    other = named(name)
    agreed = approved(tmp_path, Shown(other, **lie), digest)
    assert other.approval.hex() not in agreed
    assert not Policy(ADMIN, approved=agreed).approves(other)


def test_a_name_approves_nothing(tmp_path: Path) -> None:
    """A thief of the study key would sign a study that gives records away, under an approved name."""
    harmless = named("ct-2026")
    with pytest.raises(Misuse):
        approved(tmp_path, Shown(harmless), "ct-2026")
    assert not Policy(ADMIN, approved={harmless.approval}).approves(named("ct-2026", classes=["b", "a"]))


@pytest.mark.parametrize("field", ["purpose", "display"])
@pytest.mark.parametrize("control", CONTROLS, ids=ascii)
def test_no_text_moves_the_cursor_breaks_a_line_or_turns_around(field: str, control: str) -> None:
    values = whole()
    values["notes"][field] = f"a{control}b" if field == "purpose" else [f"a{control}b", "c"]
    assert refusal(values)


# What a member reads is what is enforced


def test_everything_that_is_approved_is_said() -> None:
    """Two questions that differ in what is summed, from whom or for whom have different explanations."""
    changes: tuple[dict[str, Any], ...] = (
        {"classes": ["b", "a"]},
        {"classes": ["a", "c"]},
        {"extractor": "ab" * 6 + "cd" * 26},
        {"extractor": "ab" * 32},
        {"records": {"least": 20, "most": 25, "least_per_class": 2, "rows_per_id": 1}},
        {"records": {"least": 21, "most": 24, "least_per_class": 2, "rows_per_id": 1}},
        {"records": {"least": 20, "most": 24, "least_per_class": 2, "rows_per_id": 2}},
        {"withhold": {"margin": 1}, "members_min": 8},
        {
            "withhold": {"margin": 1},
            "members_min": 8,
            "records": {"least": 20, "most": 24, "least_per_class": 3, "rows_per_id": 1},
        },
        {"constant": True},
        {"noise": NOISE, "ring_bits": 48},
        {"a": 4, "members_min": 9},
        {},
    )
    words = [said(read(whole(**change))) for change in changes]
    assert all(one != other for one, other in itertools.combinations(words, 2))
    for block, field, value in (
        ("notes", "display", ["Healthy", "Sick"]),
        ("notes", "purpose", "another"),
        ("after", "ridge", 1e-9),
        ("after", "publish", ["lda"]),
        ("after", "readers", "anyone"),
    ):
        values = whole()
        values[block][field] = value
        assert said(read(values)) not in words, field


def test_the_rows_that_are_promised_are_those_that_are_enforced() -> None:
    """A sum that withholds classes has as many rows as the step `rows` shows, at least those that the study needs."""
    records = {"least": 20, "most": 24, "least_per_class": 9, "rows_per_id": 1}
    question = {"withhold": {"margin": 1}, "members_min": 8, "classes": ["a", "b", "c"], "records": records}
    content = read(whole(**question))
    asked = content.question
    floor, unsure = asked.class_floor, asked.a + 1
    holders = [floor, floor, 0]
    enough = -(-asked.rows_needed // asked.records.least) + unsure
    check_counts(asked, holders, [enough] * 4 + [0] * 4)
    with pytest.raises(PeerFault):
        check_counts(asked, holders, [enough - 1] * 4 + [0] * 4)
    assert f"leaves classes out includes at least {asked.rows_needed}" in said(content)
    assert f"sum of all classes includes at least {asked.least_rows(asked.smallest.quorum)} rows" in said(
        content
    )


# A careless author


@pytest.mark.parametrize(
    ("members", "dim", "classes"), [(6, 64, 2), (12, 512, 2), (50, 768, 10), (200, 768, 2)]
)
def test_a_default_draft_gives_a_sum_where_everybody_holds_every_class(
    members: int, dim: int, classes: int
) -> None:
    """Otherwise counting the classes would spend all records, and no sum would follow."""
    keys, today = [f"class-{label}" for label in range(classes)], datetime.now(UTC).date()
    text = draft.draft_template(
        "x.toml",
        name="x",
        extractor="ab" * 32,
        dim=dim,
        classes=keys,
        members=members,
        today=today,
        why_not_listable="CT scans",
    )
    check_counts(draft.parse_draft(text, "x.toml").question, [members] * classes, None)


def test_what_members_would_refuse_is_refused_before_it_is_signed() -> None:
    content = read(whole())
    for now_s in (content.notes.expires, content.notes.expires - 91 * DAY_S):
        with pytest.raises(Misuse):
            check_signable(content, now_s)
    values = whole()
    values["notes"]["expires"] = (1 << 53) - 1  # beyond the years of any calendar
    with pytest.raises(Misuse):
        check_signable(Content.from_bytes(rfc8785.dumps(values)), 0.0)


@pytest.mark.parametrize("ridge", ["auto", 0, True, [1.0]], ids=str)
def test_what_is_no_ridge_is_refused(ridge: Any) -> None:
    values = whole()
    values["after"]["ridge"] = ridge
    assert "after.ridge" in str(refusal(values))


def test_the_coordinators_key_signs_no_study() -> None:
    """The coordinator could then choose what is summed."""
    admin, coordinator = SigningKey(b"a" * 32), SigningKey(b"c" * 32).public.hex()
    with pytest.raises(Misuse):
        Draft(number=1, coordinator=coordinator, study_key=coordinator).sign_roster(admin)
    with pytest.raises(Misuse):
        Draft(number=1, coordinator=admin.public.hex()).sign_roster(admin)
