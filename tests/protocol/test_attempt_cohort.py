"""What a study, a manifest and its cards must satisfy, in the specification's order (STUDY-1 to STUDY-4, CARDS-1 to CARDS-15)."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.support.forging import again
from tests.support.refusals import refused
from tests.support.simulator import Federation
from veilsum.protocol.attempt import check_manifest, check_study, cohort_sizes
from veilsum.protocol.messages import NO_CONTEXT, Manifest, Roster, Study, Survivor, cohort_id

REPEATED = b"\x07" * 32


@pytest.fixture(scope="module")
def federation() -> Federation:
    return Federation(6)


# Study


def test_a_study_is_checked_in_this_order(federation: Federation) -> None:
    roster, study = federation.roster, federation.study
    assert check_study(roster, study) == federation.content
    key = federation.admin
    wrongs: list[tuple[str, Callable[[Roster, Study], tuple[Roster, Study]]]] = [
        ("wrong-federation", lambda r, s: (r, again(s, key, federation=bytes(32)))),
        ("bad-signature", lambda r, s: (replace(r, study_key=federation.coordinator.public), s)),
        ("study-refused", lambda r, s: (r, again(s, key, content=b"{}"))),
        ("study-refused", lambda r, s: (replace(r, revoked=(s.hash,)), s)),
    ]
    for at, (cause, _) in enumerate(wrongs):
        broken = roster, study
        for _, change in reversed(wrongs[at:]):
            broken = change(*broken)
        with refused(cause, "admin"):
            check_study(*broken)


def test_another_version_of_a_revoked_study_stands(federation: Federation) -> None:
    content = federation.content.model_copy(
        update={"notes": federation.content.notes.model_copy(update={"version": 2})}
    )
    roster = replace(federation.roster, revoked=(federation.study.hash,))
    check_study(roster, again(federation.study, federation.admin, content=content.to_bytes()))


@pytest.mark.parametrize("enrolled", range(4))
def test_a_cohort_below_the_studys_minimum_names_it(federation: Federation, enrolled: int) -> None:
    asked = federation.content.question.model_copy(update={"members_min": 5})
    with refused("cohort-too-small") as caught:
        cohort_sizes(federation.roster, asked, federation.ids[:enrolled], repeats=False)
    assert re.findall(r"\d+", caught.value.detail) == [str(enrolled), "5"]


# Manifest


def changed(federation: Federation, **changes: Any) -> Manifest:
    return replace(federation.manifest, **changes)


def check(federation: Federation, manifest: Manifest, **changes: Any) -> None:
    values: dict[str, Any] = {"roster": federation.roster, "study": federation.study, **changes}
    check_manifest(values["roster"], values["study"], manifest, values.get("repeated"))


def repeating(federation: Federation, **changes: Any) -> Manifest:
    """Return a manifest whose run repeats an attempt, with consistent other fields."""
    named = (federation.roster.hash, 0, federation.study.hash, "period-0", REPEATED)
    return changed(federation, repeats=REPEATED, cohort=cohort_id(*named), **{"survivors_min": 6, **changes})


SURVIVORS = tuple(Survivor(f"member-{index}", bytes(32)) for index in range(6))


def _of_study(federation: Federation, repeats: bytes = NO_CONTEXT, **changes: Any) -> Manifest:
    """Return the manifest that the coordinator makes for the federation's current study."""
    named = (federation.roster.hash, 0, federation.study.hash, "period-0", repeats)
    return replace(
        federation.manifest, study=federation.study.hash, cohort=cohort_id(*named), repeats=repeats, **changes
    )


@pytest.mark.parametrize("period", ["rehearsal-1", "judge-1"])
def test_2_a_period_is_of_a_kind_that_the_study_has(federation: Federation, period: str) -> None:
    named = (federation.roster.hash, 0, federation.study.hash, period, NO_CONTEXT)
    with refused("terms-refused", "coordinator"):
        check(federation, changed(federation, period=period, cohort=cohort_id(*named)))


@pytest.mark.parametrize(
    "repeated",
    [(), SURVIVORS[:5], (*SURVIVORS, Survivor("member-7", bytes(32)))],
    ids=["not there", "fewer", "more"],
)
def test_2_a_repeated_run_is_of_exactly_the_repeated_survivors(
    federation: Federation, repeated: tuple[Survivor, ...]
) -> None:
    check(federation, repeating(federation))  # an auditor knows no survivors
    check(federation, repeating(federation), repeated=SURVIVORS)
    with refused("repeat-mismatch", "coordinator"):
        check(federation, repeating(federation), repeated=repeated)


def test_3_fewer_members_than_the_study_needs_are_refused_over_fresh_records() -> None:
    federation = Federation(6, question={"members_min": 6})
    few = federation.ids[:5]
    sizes = cohort_sizes(federation.roster, federation.content.question, few, repeats=True)
    assert sizes.quorum.survivors_min == 5
    with refused("cohort-too-small"):
        cohort_sizes(federation.roster, federation.content.question, few, repeats=False)
    with refused("cohort-too-small"):
        check(federation, changed(federation, members=few, decryptors=few))
    with refused("cohort-too-small"):
        check(federation, changed(federation, members=(), decryptors=()))


def test_3_a_repeated_run_needs_every_member_and_looks_at_no_roster() -> None:
    """Nine of twelve members were summed. The same nine form the next cohort, with the threshold of nine."""
    federation = Federation(12)
    nine = federation.ids[:9]
    survivors = tuple(Survivor(member, bytes(32)) for member in nine)
    sizes = cohort_sizes(federation.roster, federation.content.question, nine, repeats=True)
    manifest = _of_study(
        federation,
        REPEATED,
        members=nine,
        decryptors=nine,
        survivors_min=9,
        threshold=sizes.quorum.threshold,
        decryptor_colluders=3,
        degree=8,
    )
    check(federation, manifest, repeated=survivors)
    with refused("weak-parameters"):
        check(federation, replace(manifest, survivors_min=8), repeated=survivors)
