"""Every refusal names its field."""

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from calibration import FFCStatistics, ffc_layout
from calibration.privacy import NoiseTerms, noisy_layout
from calibration.privacy.mechanism import gradient_layout, mean_layout
from client_sdk.asked import terms_mechanism
from client_sdk.errors import Misuse, PeerFault
from client_sdk.policy import Policy
from protocol.causes import Cause
from protocol.messages import Family
from tests.client_sdk.federation import EXTRACTOR, Federation

ADMIN = b"A" * 32

CENTRED = ffc_layout(3, 2).having(centre=True)
MEAN = mean_layout(3).having(dim=3, classes=2)
GRADIENTS = gradient_layout(3, 2).having(dim=3, classes=2)


def test_keys_are_bytes_or_hexadecimal() -> None:
    digest = hashlib.sha256(b"e").digest()
    assert Policy(ADMIN) == Policy(ADMIN.hex())
    assert Policy(ADMIN).federation == ADMIN
    assert Policy(ADMIN, extractors=frozenset({digest.hex()})).extractors == frozenset({digest})
    assert Policy(ADMIN, statistics=["ffc"]).statistics == {"ffc"}  # type: ignore[arg-type]  # lists are welcome


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"admin_key": b"short"}, "32 bytes"),
        ({"admin_key": "xyz"}, "not hexadecimal"),
        ({"admin_key": None}, "not hexadecimal"),
        ({"extractors": {"ab"}}, "extractors: 32 bytes"),
        ({"statistics": "ffc"}, 'write {"ffc"}'),
        ({"members_min": 2}, "at least 3"),
        ({"survivors_min": 0}, "at least 3"),
        ({"honest_min": 2}, "at least 3"),
        ({"colluders_min": -1}, "at least 0"),
        ({"decryptor_colluders_min": -1}, "at least 0"),
        ({"loss_max": -1}, "at least 0"),
        ({"changed_records_min": -1}, "at least 0"),
        ({"lifetime_max_s": 0}, "above 0"),
        ({"lifetime_max_s": float("nan")}, "above 0"),
        ({"records_max": 0}, "above 0"),
        ({"card_lifetime_s": -1}, "above 0"),
    ],
)
def test_a_policy_that_means_nothing_is_misuse(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(Misuse, match=match):
        Policy(**{"admin_key": ADMIN, **settings})


@pytest.mark.parametrize(
    ("limits", "field", "wanted", "seen"),
    [
        ({"members_min": 4}, "members_min", "at least 4", "3"),
        ({"survivors_min": 4}, "survivors_min", "at least 4", "3"),
        ({"honest_min": 4}, "honest_min", "at least 4", "3"),
        ({"colluders_min": 1}, "colluders_min", "at least 1", "0"),
        ({"decryptor_colluders_min": 1}, "decryptor_colluders_min", "at least 1", "0"),
        ({"loss_max": 99}, "loss_max", "at most 99 in a thousand", "100"),
    ],
)
def test_a_cohort_is_refused_by_its_field(
    federation: Federation, limits: dict[str, int], field: str, wanted: str, seen: str
) -> None:
    cohort = federation.coordinator.open_cohort()
    policy = Policy(federation.admin.public, **limits)  # type: ignore[arg-type]  # whole numbers all
    flows = {m: federation.member(m, policy=policy).enrol(cohort) for m in federation.ids}
    for fault in federation.together(flows).values():
        assert isinstance(fault, PeerFault)
        assert fault.cause is Cause.POLICY_REFUSED
        assert fault.detail == f"{field}: this member wants {wanted}, the coordinator offers {seen}"


def test_a_policy_may_refuse_a_roster_that_publishes_rare_classes(federation: Federation) -> None:
    policy = Policy(federation.admin.public, publish_rare_classes=False)
    with pytest.raises(PeerFault) as caught:
        federation.member("member-0", policy=policy, roster=federation.roster)
    assert caught.value.cause is Cause.POLICY_REFUSED
    assert caught.value.detail == (
        "publish_rare_classes: this member wants rare classes to be withheld, the admin offers a roster that publishes "
        "them"
    )
    policy.check_roster(federation.make_roster(2, withhold=1))


def test_a_cohort_shrunk_to_the_victim_and_colluders_is_refused(tmp_path: Path) -> None:
    # Nobody of five is assumed to collude: two of the nine who do would subtract their own vectors from the sum.
    federation = Federation(tmp_path, members=9)
    cohort = federation.coordinator.open_cohort(colluders=0)
    flows = {m: federation.member(m).enrol(cohort) for m in federation.ids[:5]}

    def stuck() -> bool:
        federation.coordinator.close_cohort(cohort)
        return True

    fault = federation.together(flows, stuck=stuck)["member-0"]
    assert isinstance(fault, PeerFault)
    assert fault.cause is Cause.POLICY_REFUSED
    assert fault.detail == "colluders_min: this member wants at least 2, the coordinator offers 0"
    federation.close()


def refusal(
    federation: Federation, terms: dict[str, Any], policy: dict[str, Any], statistics: FFCStatistics | None
) -> PeerFault:
    round_id = federation.coordinator.open_round(federation.enrol(), **terms)
    member = federation.member("member-0", policy=Policy(federation.admin.public, **policy))
    with pytest.raises(PeerFault) as caught:
        federation.alone(member.contribute(round_id, statistics, "main"))
    held = member.session.store.held(bytes.fromhex(federation.coordinator.view(round_id).cohort))
    assert held is not None
    assert type(held.phase).__name__ == "Ready"  # nothing moved
    return caught.value


@pytest.mark.parametrize(
    ("terms", "policy", "field", "seen"),
    [
        ({"statistic": "other"}, {}, "statistics", "other"),
        ({"bias": True}, {"statistics": {"ffc"}}, "statistics", "ffc-bias"),
        ({"statistic": "loo"}, {}, "statistics", "loo"),
        ({}, {"extractors": {"ab" * 32}}, "extractors", EXTRACTOR.hex()),
        ({}, {"extractors": set()}, "extractors", EXTRACTOR.hex()),
        ({}, {"records_max": 2999}, "records_max", "3000"),
        ({}, {"lifetime_max_s": 3600}, "lifetime_max_s", "86400 s"),
        ({}, {"sigma_min": 1.0}, "sigma_min", "0"),
        ({}, {"mu_max": 1.0}, "mu_max", "an exact sum"),
        ({}, {"members_min": 4}, "members_min", "3"),
    ],
)
def test_terms_are_refused_by_their_field(
    federation: Federation, terms: dict[str, Any], policy: dict[str, Any], field: str, seen: str
) -> None:
    fault = refusal(federation, terms, policy, None)
    assert fault.cause is Cause.POLICY_REFUSED
    assert fault.detail.startswith(f"{field}: this member wants ")
    assert fault.detail.endswith(f"the coordinator offers {seen}")


def statistics(dim: int = 3, classes: int = 2, **settings: Any) -> FFCStatistics:
    return FFCStatistics(dim, classes, **settings)


@pytest.mark.parametrize(
    ("terms", "own", "field"),
    [
        ({}, statistics(bias=True), "statistic"),
        ({"bias": True}, statistics(), "statistic"),
        ({}, statistics(dim=4), "layout"),
        ({}, statistics(classes=5), "layout"),
    ],
)
def test_terms_that_do_not_fit_the_statistics_are_refused_by_name(
    federation: Federation, terms: dict[str, Any], own: FFCStatistics, field: str
) -> None:
    fault = refusal(federation, terms, {}, own)
    assert fault.cause is Cause.POLICY_REFUSED
    assert fault.detail.startswith(f"{field}: this member wants ")


@pytest.mark.parametrize(
    ("terms", "match"),
    [
        ({"elements": 15}, "15 elements, of which the layout has 14"),
        ({"lattice_bits": 60}, "1 to 52 bits"),
        ({"lattice": "third"}, "no lattice is called 'third'"),
        ({"lattice": "features", "lattice_bits": 12}, "exact sums of ffc on the features lattice"),
        ({"layout": CENTRED.to_bytes()}, "features are centred under noise alone"),
        (
            {"statistic": "rff", "layout": MEAN.to_bytes(), "elements": 4},
            "size is None in the terms of a rff",
        ),
        ({"statistic": "mean", "layout": MEAN.to_bytes(), "elements": 4}, "exact sums of mean, whose"),
        (
            {"statistic": "refine", "layout": GRADIENTS.to_bytes(), "elements": 6},
            "exact sums of refine, whose terms are of noisy ones",
        ),
        ({"records_max": 2999}, "members may hold 3000 records"),
        ({"ring_bits": 32}, "it takes 44 bits"),
    ],
)
def test_terms_that_contradict_themselves_are_refused(
    federation: Federation, terms: dict[str, Any], match: str
) -> None:
    fault = refusal(federation, terms, {}, None)
    assert fault.cause is Cause.TERMS_REFUSED
    assert match in fault.detail


@pytest.mark.parametrize("name", ["folds", "loo", "balanced", "counts", "reliability"])
def test_a_question_that_nobody_knows_is_refused_whatever_the_policy_says(
    federation: Federation, name: str
) -> None:
    fault = refusal(federation, {"statistic": name}, {"statistics": {name}}, None)
    assert fault.cause is Cause.TERMS_REFUSED
    assert f"no round asks '{name}'" in fault.detail


@pytest.mark.parametrize(
    ("field", "tiny", "least"), [("mu", b"1e-200", "1e-06"), ("weight", b"1e-300", "0.001")]
)
def test_noise_that_no_float_can_size_is_refused(
    federation: Federation, field: str, tiny: bytes, least: str
) -> None:
    layout, known = noisy_layout(3, 2), NoiseTerms(1.0, 1.0).to_bytes()
    terms = {
        "layout": layout.to_bytes(),
        "elements": layout.elements,
        "lattice": "features",
        "lattice_bits": 12,
        "noise": known.replace(f'"{field}":1.0'.encode(), f'"{field}":'.encode() + tiny),
    }
    assert terms["noise"] != known
    fault = refusal(federation, terms, {}, None)
    assert fault.cause is Cause.TERMS_REFUSED
    assert f"{field} of a round's noise lies between {least} and " in fault.detail


@pytest.mark.parametrize(
    ("weight", "mu", "bits", "least"),
    [
        (1.0, 0.47, 12, 2.128),  # off the diagonal of V, where √½ of σ stands
        (2.0, 0.74, 12, 1.511),  # on U, as in all that follow
        (5.0, 1.6, 12, 0.637),
        (100.0, 2.0, 12, 0.500),
        (1000.0, 2.0, 10, 0.500),
        (1000.0, 100.0, 10, 0.010),
    ],
)
def test_the_least_deviation_is_that_of_the_element_with_least_noise(
    weight: float, mu: float, bits: int, least: float
) -> None:
    terms = SimpleNamespace(
        statistic="ffc",
        noise=NoiseTerms(mu, weight).to_bytes(),
        layout=noisy_layout(64, 10).to_bytes(),
        elements=noisy_layout(64, 10).elements,
        lattice="features",
        lattice_bits=bits,
        family=Family.NOISY,
    )
    manifest = SimpleNamespace(survivors_min=9, colluders=3)
    attempt: Any = SimpleNamespace(
        opening=SimpleNamespace(terms=terms), members=range(12), manifest=manifest, context=bytes(32)
    )
    mechanism = terms_mechanism(attempt)
    assert mechanism is not None
    assert mechanism.sigma > 3
    assert mechanism.deviation_min == pytest.approx(least, abs=5e-4)
    Policy(ADMIN, sigma_min=mechanism.deviation_min).check_noise(attempt)
    with pytest.raises(PeerFault, match="sigma_min: this member wants a deviation of at least 3") as caught:
        Policy(ADMIN, sigma_min=3.0).check_noise(attempt)
    assert caught.value.cause is Cause.POLICY_REFUSED


def test_more_records_than_the_cap(federation: Federation) -> None:
    round_id = federation.coordinator.open_round(federation.enrol(cap=4))
    with pytest.raises(PeerFault, match="5 records, this cohort's cap is 4") as caught:
        federation.alone(federation.contributions(round_id, ["member-0"])["member-0"])
    assert caught.value.cause is Cause.TOO_MANY_RECORDS


def test_an_extractor_that_the_policy_names_is_accepted(federation: Federation) -> None:
    federation.policy = Policy(federation.admin.public, extractors=frozenset({EXTRACTOR}))
    round_id = federation.coordinator.open_round(federation.enrol())
    results = federation.together(federation.contributions(round_id))
    assert all(result.counted for result in results.values())


def test_by_default_a_quarter_of_the_members_may_collude(tmp_path: Path) -> None:
    federation = Federation(tmp_path, members=4)
    cohort = federation.coordinator.open_cohort(colluders=0)
    flows = {m: federation.member(m).enrol(cohort) for m in federation.ids[:3]}
    trusting = Policy(federation.admin.public, colluders_min=0)
    flows["member-3"] = federation.member("member-3", policy=trusting).enrol(cohort)
    results = federation.together(flows)
    assert results.pop("member-3").colluders == 0
    assert {fault.detail for fault in results.values()} == {
        "colluders_min: this member wants at least 1, the coordinator offers 0"
    }
    federation.close()
