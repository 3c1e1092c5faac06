import re
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.study.specs import NOW_S, content_of, spec_of, whole
from tests.support.cli import Cli
from veilsum.cli.admin import read_study_draft
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import Roster, Study, parse_message
from veilsum.protocol.study import DAY_S, RECIPES, Content
from veilsum.study import draft, signed
from veilsum.study.explain import explain_study

ADMIN, OTHER = SigningKey(bytes(32)), SigningKey(b"\1" * 32)
NOISE = {"epsilon": 2.0, "delta": 1e-7, "unit": "record", "recipe": "mean+sum"}
KERNEL_10 = {"kind": "random-features", "size": 10, "bandwidth": 1.0}


def refusal(values: dict[str, Any]) -> str:
    with pytest.raises(PeerFault) as caught:
        content_of(values)
    assert caught.value.cause == Cause.STUDY_REFUSED
    return str(caught.value.detail)


@pytest.mark.parametrize(
    ("question", "least"),
    [
        ({"records": {"least": 9, "most": 20, "least_per_class": 5, "rows_per_id": 1}}, 10),
        # dim 16, 128 features, 2 classes: 8,514 numbers; 2 · 8,514 / 15 = 1,136 rows of five honest members
        ({"statistics": [{"kind": "random-features", "size": 128, "bandwidth": 1.0}]}, 228),
    ],
)
def test_a_study_of_too_few_rows_is_told_how_many_would_do(question: dict[str, Any], least: int) -> None:
    assert f"take at least {least}" in refusal(whole(**question))


@pytest.mark.parametrize(("dim", "allowed"), [(1 << 15, True), ((1 << 15) + 1, False)])
def test_random_features_draw_up_to_two_to_the_27th_numbers(dim: int, *, allowed: bool) -> None:
    records = {"least": 10_000_000, "most": 20_000_000, "least_per_class": 5, "rows_per_id": 1}
    asked = whole(dim=dim, statistics=[{**KERNEL_10, "size": 1 << 12}], records=records)
    with nullcontext() if allowed else pytest.raises(PeerFault, match="dim · size"):
        content_of(asked)


def test_noise_of_too_much_delta_is_told_how_much_would_do() -> None:
    assert "4e-06" in refusal(whole(noise={**NOISE, "delta": 9e-6}, withhold=None))


def test_settings_of_ccvr_go_with_its_statistic() -> None:
    with_statistic, without = whole(statistics=[{"kind": "ccvr"}]), whole()
    without["after"]["ccvr"] = {"samples_per_class": 100, "power": 0.5}
    assert ["after.ccvr" in refusal(each) for each in (with_statistic, without)] == [True, True]


def test_rewording_a_reason_asks_no_other_question_but_for_another_approval() -> None:
    values = whole(withhold=None)
    before = content_of(values)
    for field in ("why_not_listable", "why_not_withheld"):
        values["notes"][field] = "in other words"
        after = content_of(values)
        assert after.question.digest == before.question.digest
        assert after.approval != before.approval
        before = after


@pytest.mark.parametrize(
    ("question", "needed", "of_a_class"),
    [
        # dim, C, statistics: the widest second moment twice, or two unknowns for each number
        ({}, 50, 3),
        ({"dim": 64}, 128, 3),
        ({"dim": 64, "constant": True}, 130, 3),
        ({"dim": 8, "classes": [f"c{label}" for label in range(40)]}, 114, 3),
        ({"dim": 2, "statistics": [KERNEL_10]}, 154, 22),
        ({"dim": 8, "statistics": [{"kind": "ffc"}, KERNEL_10]}, 50, 6),
        ({"dim": 64, "statistics": [{"kind": "ccvr"}], "members_min": 12}, 137, 128),
        ({"dim": 3, "statistics": [{"kind": "ccvr"}]}, 50, 10),
    ],
)
def test_the_rows_that_a_study_and_a_class_need(
    question: dict[str, Any], needed: int, of_a_class: int
) -> None:
    records = {"least": 100, "most": 20_000, "least_per_class": 50, "rows_per_id": 1}
    asked = spec_of(**{"records": records, **question}).question
    assert (asked.rows_needed, asked.class_rows_needed) == (needed, of_a_class)
    assert asked.class_floor == asked.a + 3 + max(3, -(-of_a_class // 50))


def test_steps() -> None:
    assert content_of(whole()).question.steps == ("count", "rows", "sum")
    assert content_of(whole(withhold=None)).question.steps == ("sum",)
    for recipe, steps in RECIPES.items():
        noise = {**NOISE, "recipe": recipe}
        question = content_of(whole(withhold=None, noise=noise)).question
        assert question.steps == tuple(step for step, _ in steps)
        assert sum(share for _, share in steps) == pytest.approx(1, abs=1e-12)


def test_sign_and_read() -> None:
    content = content_of(whole())
    study = signed.sign_study(content, ADMIN.public, ADMIN, NOW_S)
    assert parse_message(study.to_bytes()) == study
    keys = dict.fromkeys(("federation", "coordinator", "study_key"), ADMIN.public)
    lists: dict[str, Any] = dict.fromkeys(("members", "decryptors", "readers", "revoked"), ())
    roster = Roster.make_signed(ADMIN, number=1, name="f", **keys, **lists)

    def version(number: int) -> Study:
        notes = content.notes.model_copy(update={"version": number, "purpose": "another"})
        return signed.sign_study(content.model_copy(update={"notes": notes}), ADMIN.public, ADMIN, NOW_S)

    def read(
        shown: Study = study, now_s: float = NOW_S, seen: Study | None = None, **changed: Any
    ) -> Content:
        return signed.read_study(shown, replace(roster, **changed), now_s, {"ct-2026": seen}.get)

    assert read() == read(seen=study) == content
    assert read(version(2), seen=study).notes.version == 2

    def cause(shown: Study = study, **changed: Any) -> tuple[str, str]:
        with pytest.raises(PeerFault) as caught:
            read(shown, **changed)
        return caught.value.cause, caught.value.detail

    assert cause(federation=OTHER.public)[0] == Cause.WRONG_FEDERATION
    assert cause(study_key=OTHER.public)[0] == Cause.BAD_SIGNATURE
    assert "revokes" in cause(revoked=(study.hash,))[1]
    assert "has expired" in cause(now_s=content.notes.expires)[1]
    assert "expires in 120 days" in cause(now_s=NOW_S - 60 * DAY_S)[1]
    assert "version 1 of ct-2026" in cause(seen=version(2))[1]
    assert "other bytes" in cause(seen=version(1))[1]
    with pytest.raises(Misuse, match="has expired"):
        signed.sign_study(content, ADMIN.public, ADMIN, content.notes.expires)
    forged = Study.make_signed(ADMIN, federation=ADMIN.public, content=b"{}")
    assert cause(forged)[0] == Cause.STUDY_REFUSED


@pytest.mark.parametrize(
    ("members", "margin"),
    [(3, 0), (4, 0), (5, 0), (7, 0), (8, 1), (12, 1), (39, 1), (40, 2), (201, 10), (1000, 50)],
)
def test_the_template_is_a_valid_study(members: int, margin: int) -> None:
    day = date(2026, 11, 23)
    text = draft.draft_template(
        "study.toml",
        name="ct-2026",
        extractor="ab" * 32,
        dim=64,
        classes=["a", "b"],
        members=members,
        today=day,
        why_not_listable='scans "of" a site\\',
    )
    content = draft.parse_draft(text, "study.toml")
    assert content.notes.why_not_listable == 'scans "of" a site\\'
    assert content.question.withhold is not None
    assert (content.question.constant, content.question.withhold.margin) == (True, margin)
    assert content.question.members_max == members
    assert content.question.least_rows(content.question.smallest.quorum) >= 130
    noon_s = datetime(2026, 11, 23, 12, tzinfo=UTC).timestamp()
    assert signed.sign_study(content, ADMIN.public, ADMIN, noon_s).content == content.to_bytes()
    assert len(explain_study(content)) == 5


@pytest.mark.parametrize("members", [3, 12, 10_000])
def test_a_draft_without_a_reason_is_a_valid_study_with_noise(members: int) -> None:
    text = noisy_draft(members)
    content = draft.parse_draft(text, "study.toml")
    question = content.question
    assert question.listable
    assert question.withhold is None
    assert question.noise is not None
    assert question.noise.epsilon == 2
    assert question.members_max == members
    noon_s = datetime(2026, 11, 23, 12, tzinfo=UTC).timestamp()
    assert signed.sign_study(content, ADMIN.public, ADMIN, noon_s).content == content.to_bytes()


def test_a_draft_may_leave_the_recipe_out_and_say_when_it_expires_to_the_second() -> None:
    text = noisy_draft(12)
    content = draft.parse_draft(text, "study.toml")
    without = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("recipe"))
    assert draft.parse_draft(without, "study.toml").question.noise == content.question.noise
    two_steps = text.replace('recipe = "mean+sum+16-gradients"', 'recipe = "mean+sum"')
    assert len(draft.parse_draft(two_steps, "study.toml").question.steps) == 2
    text = text.replace("expires = 2027-01-22", "expires = 2027-01-22T00:00:00Z")
    assert draft.parse_draft(text, "study.toml").notes.expires == content.notes.expires - DAY_S
    with pytest.raises(Misuse, match=r"^study\.toml: notes\.expires .*\bquotes\b"):
        draft.parse_draft(text.replace("2027-01-22T00:00:00Z", '"2027-01-22"'), "study.toml")


def test_an_exact_sum_of_inputs_that_can_be_listed_is_refused() -> None:
    head, _, rest = noisy_draft(12).partition("[question.noise]")
    text = head + "[question.windows]" + rest.partition("[question.windows]")[2]
    with pytest.raises(Misuse):
        draft.parse_draft(text.replace("version = 1", 'why_not_withheld = "x"\nversion = 1'), "study.toml")
    with pytest.raises(Misuse, match=r"notes.why_not_listable: say why"):
        draft.parse_draft(noisy_draft(12).replace("listable = true", "listable = false"), "study.toml")


def noisy_draft(members: int) -> str:
    return draft.draft_template(
        "study.toml",
        name="n",
        extractor="ab" * 32,
        dim=64,
        classes=["a", "b"],
        members=members,
        today=date(2026, 11, 23),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = ", "not a TOML file"),
        ("x = 1", "Field required"),
        ("notes = 1", "notes"),
        ("question = 3", "Field required"),
        ("question = []", "Field required"),
        (f"a = {5000 * '['}", "too deeply"),
        (f"[{'.'.join(3000 * 'a')}]", "too deeply"),
        (None, "does not exist"),
    ],
)
def test_drafts_that_are_no_studies(text: str | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(Misuse, match=said):
        read_study_draft(path)


def test_statistics_that_are_no_tables() -> None:
    text = noisy_draft(12).replace('recipe = "mean+sum+16-gradients"', "")
    [block] = re.findall(r"\[\[question.statistics\]\].*\nkind.*\n", text)
    broken = text.replace(block, "").replace("ring_bits", "statistics = 3\nring_bits")
    with pytest.raises(Misuse, match=r"question\.statistics"):
        draft.parse_draft(broken, "study.toml")


def test_the_commands(cli: Cli) -> None:
    cli("admin", "new", "admin")
    new = ("admin", "study", "new", "s.toml", "--extractor", "ab" * 32, "--dim", "64")
    classes = ("--class", "cat", "--class", "dog", "--members", "12")
    assert cli(*new[:5], "ab", *new[6:], *classes).error
    assert cli(*new, *classes, "--class", "bär").error
    assert not Path("s.toml").exists()
    assert "noisy: ε = 2" in cli.json(*new, *classes, "--name", "pets")["sums"]
    assert cli("admin", "study", "check", "s.toml").code == 0
    Path("s.toml").unlink()
    made = cli.json(*new, *classes, "--name", "pets", "--why-not-listable", "free photographs")
    assert "exact" in made["sums"]
    assert "s.toml" in cli(*new, *classes).error
    values = cli.json("admin", "study", "check", "s.toml")
    assert len(values["explained"]) > 4
    assert values["forecast"]["dim_max"] >= 64
    assert [cost["spends"] for cost in values["forecast"]["steps"]] == ["nothing", "nothing", "records"]
    made = cli.json("admin", "study", "sign", "s.toml", "--folder", "admin")
    study = Study.from_bytes(Path("s.bin").read_bytes())
    assert study.hash.hex() == made["hash"]
    assert Content.from_bytes(study.content).approval.hex() == made["approval"]
    assert cli("admin", "study", "sign", "s.toml", "--folder", "admin", "--output", "s.toml").error
    lead = cli.json("admin", "new", "lead")["federation"]
    other = cli.json("admin", "study", "sign", "s.toml", "--folder", "admin", "--federation", lead)
    assert other["federation"] == lead
    assert other["hash"] != made["hash"]
