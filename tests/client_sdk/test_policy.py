"""Studies and rounds that a member's policy refuses."""

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from client_sdk.errors import Misuse
from client_sdk.policy import Policy
from tests.support.consortium import NOISY, Consortium
from tests.support.refusals import refused
from veilsum.protocol.causes import Cause
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import Manifest
from veilsum.protocol.periods import PeriodKind
from veilsum.study.promise import study_mu

KEY = SigningKey(b"A" * 32).public


@pytest.mark.parametrize(
    "changes",
    [
        {"admin_key": b"short"},
        {"admin_key": "xy"},
        {"admin_key": "("},
        {"admin_key": 7},
        {"approved": "study"},
        {"approved": {"study"}},
        {"approved": {"ab" * 31}},
        {"approved": {b"short"}},
        {"approved": {7}},
        {"approved": {32}},
        {"approved": 32},
        {"admin_key": 32},
        {"members_min": 2},
        {"decryptor_colluders_min": -1},
        {"lifetime_max_s": 0},
        {"mu_budget": 0.0},
        {"mu_budget": float("nan")},
        {"epsilon_max": 0.0},
        {"epsilon_max": float("inf")},
    ],
)
def test_limits_that_mean_nothing_are_misuse(changes: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        Policy(**{"admin_key": KEY, **changes})


def test_keys_and_digests_are_bytes_or_hexadecimal() -> None:
    policy = Policy(KEY.hex(), approved=["ab" * 32, b"\xcd" * 32])
    assert policy.federation == KEY
    assert policy.approved == {b"\xab" * 32, b"\xcd" * 32}
    assert policy == Policy(KEY, approved={"AB" * 32, "cd" * 32})


def test_a_study_is_approved_by_its_digest_alone(consortium: Consortium) -> None:
    content = consortium.content()
    assert Policy(KEY, approved={content.approval}).approves(content)
    assert Policy(KEY, approved={content.approval.hex()}).approves(content)
    for other in (content.question.digest, consortium.study.hash):
        assert not Policy(KEY, approved={other}).approves(content)
    with pytest.raises(Misuse):
        Policy(KEY, approved={content.notes.name})  # the study key's holder can sign anything under it
    with refused(Cause.STUDY_REFUSED, "admin"):
        Policy(KEY).check_study(content, PeriodKind.DATA)


def test_a_renewal_needs_no_new_approval_and_every_other_change_does(consortium: Consortium) -> None:
    policy = Policy(KEY, approved={consortium.content().approval})
    assert policy.approves(consortium.content({"version": 2, "expires": 1_500_000}))
    for changed in (
        consortium.content({"purpose": "another"}),
        consortium.content({"display": ["L", "R"]}),
        consortium.content(extractor="ab" * 32),
        consortium.content(windows={"enrol": 9, "upload": 9, "answer": 9}),
    ):
        assert not policy.approves(changed)


def test_noise_at_its_limits_is_taken_and_no_more(consortium: Consortium) -> None:
    content = consortium.content(**NOISY)
    assert content.question.noise is not None
    mu = study_mu(content.question.noise)
    policy = Policy(KEY, approved={content.approval}, epsilon_max=8.0, mu_budget=mu)
    policy.check_study(content, PeriodKind.DATA)
    for lower in (replace(policy, epsilon_max=7.99), replace(policy, mu_budget=0.99 * mu)):
        with refused("policy-refused"):
            lower.check_study(content, PeriodKind.DATA)


def test_limits_on_noise_are_those_of_the_kind_of_period(consortium: Consortium) -> None:
    judge = {
        "epsilon": 4.0,
        "delta": 1e-5,
        "heads": 1,
        "positive": None,
        "bins": {"confidence": 2, "score": 2},
    }
    exact = consortium.content(judge=judge)
    policy = Policy(KEY, approved={exact.approval}, epsilon_max=4.0)
    policy.check_study(exact, PeriodKind.JUDGE)
    policy.check_study(exact, PeriodKind.REHEARSAL)
    for limited in (replace(policy, epsilon_max=3.9), replace(policy, mu_budget=0.1)):
        with refused(Cause.POLICY_REFUSED):
            limited.check_study(exact, PeriodKind.JUDGE)


@pytest.mark.parametrize(("epsilon", "taken"), [(9.99, True), (10.0, False)])
def test_a_record_s_noise_adds_up_to_two_unless_the_member_says_otherwise(
    consortium: Consortium, *, epsilon: float, taken: bool
) -> None:
    """At δ = 10⁻⁵, ε = 10 is a μ of 2.0004."""
    noise = {**NOISY["noise"], "epsilon": epsilon, "delta": 1e-5}
    content = consortium.content(**{**NOISY, "noise": noise})
    policy = Policy(KEY, approved={content.approval})
    with nullcontext() if taken else refused("policy-refused"):
        policy.check_study(content, PeriodKind.DATA)


def test_a_cohort_too_small_or_too_weak_is_refused(consortium: Consortium) -> None:
    manifest = manifest_of(consortium)
    Policy(KEY, members_min=3).check_manifest(manifest)
    with refused("policy-refused"):
        Policy(KEY, members_min=4).check_manifest(manifest)
    with refused("policy-refused"):
        Policy(KEY, decryptor_colluders_min=1).check_manifest(manifest)


def manifest_of(consortium: Consortium) -> Manifest:
    return consortium.operator.manifest(consortium.enrol())


def test_an_attempt_that_lasts_too_long_is_refused(consortium: Consortium) -> None:
    round_id = consortium.open_round(consortium.enrol())
    attempt = consortium.round(round_id).attempt
    now_s = consortium.clock()
    consortium.policy.check_opening(attempt, now_s)
    with refused("policy-refused"):
        replace(consortium.policy, lifetime_max_s=3600).check_opening(attempt, now_s)
    replace(consortium.policy, lifetime_max_s=86_400).check_opening(attempt, now_s)
    with refused("policy-refused"):
        replace(consortium.policy, lifetime_max_s=86_399).check_opening(attempt, now_s)
    with refused("study-refused", "admin"):
        replace(consortium.policy, approved=()).check_opening(attempt, now_s)
    with refused("policy-refused"):
        replace(consortium.policy, members_min=9).check_opening(attempt, now_s)
