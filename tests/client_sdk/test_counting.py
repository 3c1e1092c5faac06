"""One call takes part in the count and in the round that withholds by it."""

from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from calibration import ClassIndicator, ShapeMismatch, SumsLattice, solve_ffc
from calibration.privacy import NoiseTerms, noisy_layout
from client_sdk import Result, Wanted
from client_sdk.effects import Flow, Request, Response
from client_sdk.errors import Misuse, NoResult, PeerFault
from client_sdk.policy import Policy
from client_sdk.progress import Step
from client_sdk.store import Store
from client_sdk.supply import Supply
from protocol.attempt import Attempt
from protocol.causes import Cause
from protocol.member import Closed
from protocol.messages import Disclosure
from protocol.record import sign_record
from protocol.shamir import share_secrets
from tests.client_sdk.counting import Counting
from tests.client_sdk.federation import Kill
from tests.client_sdk.local_coordinator import CLASSES, DIM
from tests.protocol.forging import again


@pytest.fixture
def counting(tmp_path: Path) -> Iterator[Counting]:
    built = Counting(tmp_path)
    yield built
    built.close()


def both(counting: Counting, **terms: Any) -> tuple[str, dict[str, Any]]:
    """Everybody's single call, and the indicator round that it was given."""
    cohort = counting.enrol()
    indicator = counting.coordinator.open_indicator(cohort)
    stuck = counting.leading_on(cohort, indicator, **terms)
    return indicator, counting.together(counting.contributions(indicator), stuck=stuck)


def counted(counting: Counting, member: str = "member-0") -> Any:
    (found,) = Store(counting.folder / member).history().counted
    return found


def test_one_call_counts_and_then_sums_without_the_rare_class(counting: Counting) -> None:
    indicator, results = both(counting)
    assert {type(result) for result in results.values()} == {Result}, results
    pooled = counting.kept("member-0")
    for member in counting.ids[1:]:
        pooled.merge(counting.kept(member))
    for member, result in results.items():
        assert result.counted
        assert result.record.withheld == (1,)
        assert result.record.rare.holders == (3, 2) == counted(counting, member).holders
        assert (result.record.rare.floor, result.record.rare.margin) == (3, 0)
        assert result.record.records == pooled.records
        assert np.allclose(result.weights, solve_ffc(pooled, ridge=0.1).weights, atol=1e-6)
        assert not result.weights[:, 1].any()
        again = Result.load(counting.folder / member / "state/results" / result.record.round)
        again.verify(counting.admin.public)
    # one lineage with one set of records, in both rounds
    (lineage,) = Store(counting.folder / "member-0").lineages.all()
    assert (lineage.family, len(lineage.versions), len(lineage.versions[0].contexts)) == ("exact", 1, 2)
    said = {event.step for _, event in counting.events}
    assert Step.COUNTING in said
    # over already, the same call gives the same result
    main = results["member-0"].record.round
    for round_id in (indicator, main):
        result = counting.alone(counting.contributions(round_id, ["member-0"])["member-0"])
        assert result.record.round == main


def test_no_noisy_round_rests_on_exact_counts(counting: Counting) -> None:
    layout = noisy_layout(DIM, CLASSES)
    noisy = {
        "layout": layout.to_bytes(),
        "elements": layout.elements,
        "lattice": "features",
        "lattice_bits": 12,
        "noise": NoiseTerms(0.5, 1.0).to_bytes(),
    }
    _, results = both(counting, **noisy)
    assert {(fault.cause, fault.detail) for fault in results.values()} == {
        (Cause.TERMS_REFUSED, "noise in a round that rests on exact counts of the classes' holders")
    }


def test_a_head_never_answers_what_was_withheld(counting: Counting) -> None:
    _, results = both(counting)
    result = results["member-0"]
    features = -np.abs(np.random.default_rng(0).standard_normal((50, DIM)))
    scores = result.scores(features)
    assert result.unanswered == (1,)
    assert scores.shape == (50, CLASSES)
    assert np.isneginf(scores[:, 1]).all()
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    np.testing.assert_allclose(scores[:, 0], unit @ result.weights[:, 0])
    assert (scores[:, 0] < 0).any()  # where the zeros of the withheld class would win
    assert not result.predict(features).any()
    with pytest.raises(ShapeMismatch):
        result.predict(features[:, :-1])


def test_the_shares_of_a_count_are_erased_once_it_is_made(counting: Counting) -> None:
    cohort = counting.enrol()
    indicator = counting.coordinator.open_indicator(cohort)
    counting.together(counting.contributions(indicator))
    held = Store(counting.folder / "member-1").held(bytes.fromhex(cohort))
    assert held is not None
    assert isinstance(held.phase, Closed)
    assert (held.phase.held, held.phase.reveals) == ((), ())
    assert counted(counting, "member-1").holders == (3, 2)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_member_killed_at_any_effect_of_both_rounds_goes_on(tmp_path: Path, moment: str) -> None:
    number = 0
    while True:
        counting = Counting(tmp_path / str(number))
        cohort = counting.enrol()
        indicator = counting.coordinator.open_indicator(cohort)

        def again(counting: Counting = counting, indicator: str = indicator) -> Flow[Result]:
            return counting.contributions(indicator, ["member-1"])["member-1"]

        kill = Kill("member-1", moment, number, again)
        stuck = counting.leading_on(cohort, indicator)
        results = counting.together(counting.contributions(indicator), kill, stuck=stuck)
        counting.close()
        assert {type(result) for result in results.values()} == {Result}, (number, kill.struck, results)
        assert all(result.counted for result in results.values())
        for place, bodies in counting.coordinator.wire.items():
            assert len(set(bodies)) == 1, (number, kill.struck, place)
        if kill.struck is None:
            break
        number += 3
    assert number > 40


def test_who_counted_late_counts_when_the_next_round_asks_for_it(counting: Counting) -> None:
    cohort = counting.enrol()
    indicator = counting.coordinator.open_indicator(cohort)
    vanish = {"member-2": "result/evictions"}
    counting.together(counting.contributions(indicator), vanish=vanish)
    assert Store(counting.folder / "member-2").history().counted == ()
    main = counting.coordinator.open_main(cohort, indicator)
    results = counting.together(counting.contributions(main))
    assert {type(result) for result in results.values()} == {Result}, results
    assert counted(counting, "member-2").holders == (3, 2)


def test_who_only_helps_to_decrypt_counts_too(tmp_path: Path) -> None:
    counting = Counting(tmp_path, members=6)
    cohort = counting.enrol()
    indicator = counting.coordinator.open_indicator(cohort)

    def flows(round_id: str) -> dict[str, Flow[Any]]:
        return counting.contributions(round_id, counting.ids[:5]) | {
            "member-5": counting.member("member-5").contribute(round_id, None, "main")
        }

    expire = counting.expiring(indicator)
    counting.together(flows(indicator), stuck=expire)
    assert counted(counting, "member-5").holders == (5, 3)
    main = counting.coordinator.open_main(cohort, indicator)
    results = counting.together(flows(main), stuck=counting.expiring(main))
    assert {type(result) for result in results.values()} == {Result}, results
    assert not results["member-5"].counted
    assert results["member-5"].record.withheld == (1,)


def test_a_false_dealer_of_the_count_is_left_out_of_both_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = Counting(tmp_path, members=5)
    cohort = counting.enrol()
    indicator = counting.coordinator.open_indicator(cohort)
    flows = counting.contributions(indicator)
    with monkeypatch.context() as patched:
        patched.setattr(
            "protocol.sealing.share_secrets",
            lambda secrets, *rest: share_secrets([b"\x01" * 32] * len(secrets), *rest),
        )
        counting.run_until(flows.pop("member-3"), "chunks/0")
    flows |= counting.contributions(indicator, ["member-3"])
    results = counting.together(flows, stuck=counting.leading_on(cohort, indicator))
    assert {type(result) for result in results.values()} == {Result}, results
    for member, result in results.items():
        assert counted(counting, member).holders == (4, 2)
        assert "member-3" not in result.survivors
        assert result.counted == (member != "member-3")


# What is refused


def test_statistics_made_before_fit_what_they_leave_out(counting: Counting) -> None:
    cohort = counting.enrol()
    indicator = counting.coordinator.open_indicator(cohort)
    flows = counting.contributions(indicator)
    flows["member-0"] = counting.member("member-0").contribute(indicator, counting.kept("member-0"), "main")
    flows["member-1"] = counting.member("member-1").contribute(
        indicator, counting.kept("member-1", ()), "main"
    )
    results = counting.together(flows, stuck=counting.leading_on(cohort, indicator))
    fault = results["member-1"]
    assert isinstance(fault, PeerFault)
    assert str(fault).startswith(
        "policy-refused: withheld: this member wants classes [] left out, as its statistics leave them, and passes Records"
    )
    assert str(fault).endswith("the coordinator offers [1]")


def test_a_round_over_other_classes_than_were_counted_is_refused(counting: Counting) -> None:
    cohort = counting.enrol()
    indicator = counting.coordinator.open_indicator(cohort, classes=CLASSES + 1)
    counting.together(counting.contributions(indicator))
    assert counted(counting).holders == (3, 2, 0)
    main = counting.coordinator.open_main(cohort, indicator)
    fault = counting.together(counting.contributions(main))["member-0"]
    assert isinstance(fault, PeerFault)
    assert fault.cause is Cause.INDICATOR_MISMATCH
    assert fault.detail == "the round is over 2 classes, its indicator round counted 3"


def test_another_list_than_the_counts_give_is_refused(counting: Counting) -> None:
    cohort = counting.enrol()
    indicator = counting.coordinator.open_indicator(cohort)
    counting.together(counting.contributions(indicator))
    main = counting.coordinator.open_main(cohort, indicator, withheld=())
    results = counting.together(counting.contributions(main))
    assert {fault.cause for fault in results.values()} == {Cause.INDICATOR_MISMATCH}


def test_a_disclosure_that_members_did_not_send_is_refused_and_nothing_counted(counting: Counting) -> None:
    cohort = counting.enrol()
    indicator = counting.coordinator.open_indicator(cohort)
    true = counting.coordinator._disclosure

    def lying(request: Request, round_id: str, member: str) -> Response:
        shown = Disclosure.from_bytes(true(request, round_id, member).body)
        first = shown.entries[0]
        entries = (replace(first, chunks=(bytes(len(first.chunks[0])),)), *shown.entries[1:])
        return Response(200, {}, replace(shown, entries=entries).to_bytes())

    counting.coordinator._disclosure = lying  # type: ignore[method-assign]  # the coordinator's lie
    results = counting.together(counting.contributions(indicator))
    assert {fault.cause for fault in results.values()} == {Cause.DISCLOSURE_INVALID}
    assert Store(counting.folder / "member-0").history().counted == ()


def test_who_missed_the_count_says_so(counting: Counting) -> None:
    cohort = counting.enrol()
    indicator = counting.coordinator.open_indicator(cohort)
    counting.together(
        counting.contributions(indicator, ["member-0", "member-1"]), stuck=counting.expiring(indicator)
    )
    missed = counting.together(counting.contributions(indicator, ["member-2"]))["member-2"]
    assert isinstance(missed, NoResult | PeerFault)


def test_who_went_on_without_counting_is_told_to_wait_for_the_next_count(counting: Counting) -> None:
    cohort = counting.enrol()
    first = counting.coordinator.open_indicator(cohort)
    counting.together(counting.contributions(first), vanish={"member-2": "result/evictions"})
    second = counting.coordinator.open_indicator(cohort)
    counting.together(counting.contributions(second))
    # the first is not counted any more, and the second is
    assert counted(counting, "member-2").context == counting.coordinator.rounds[second].phase.attempt.context
    fault = counting.together(counting.contributions(first, ["member-2"]))["member-2"]
    assert isinstance(fault, PeerFault)
    assert fault.cause is Cause.INDICATOR_MISMATCH
    assert "take part in the next one" in fault.detail


def test_a_policy_may_keep_which_classes_a_member_holds_to_itself(counting: Counting) -> None:
    cohort = counting.enrol()
    indicator = counting.coordinator.open_indicator(cohort)
    policy = Policy(admin_key=counting.admin.public, statistics=frozenset({"ffc"}))
    flow = counting.member("member-0", policy=policy).contribute(
        indicator, counting.records("member-0"), "main"
    )
    with pytest.raises(PeerFault, match="policy-refused: statistics: this member wants one of ffc"):
        counting.alone(flow)


@pytest.mark.parametrize("changes", [{"lattice": "sums"}, {"lattice_bits": 2}])
def test_a_count_is_on_its_own_lattice(counting: Counting, changes: dict[str, Any]) -> None:
    cohort = counting.enrol()
    indicator = counting.coordinator.open_indicator(cohort, **changes)
    with pytest.raises(PeerFault, match="terms-refused"):
        counting.alone(counting.contributions(indicator, ["member-0"])["member-0"])


def test_statistics_on_an_indicators_lattice_are_refused(counting: Counting) -> None:
    counting.roster = counting.coordinator.roster = counting.make_roster(1)
    cohort = counting.enrol()
    main = counting.coordinator.open_round(cohort, lattice="indicator", lattice_bits=1)
    flow = counting.member("member-0").contribute(main, counting.records("member-0"), "main")
    with pytest.raises(PeerFault, match="terms-refused: a round of ffc statistics on the indicator lattice"):
        counting.alone(flow)


def test_a_cohort_that_is_shown_without_its_round_is_refused(counting: Counting) -> None:
    cohort = counting.enrol()
    indicator = counting.coordinator.open_indicator(cohort)
    counting.coordinator.order[cohort].clear()
    results = counting.together(counting.contributions(indicator))
    assert {fault.cause for fault in results.values()} == {Cause.MALFORMED}


def test_counts_that_a_record_misstates_are_refused(
    counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = counting.coordinator.sign

    def lying(*args: Any, **changes: Any) -> Any:
        rare = true(*args).rare
        assert rare is not None
        return true(*args, **changes, rare=rare.model_copy(update={"holders": (3, 1)}))

    monkeypatch.setattr(counting.coordinator, "sign", lying)
    _, results = both(counting)
    assert {fault.cause for fault in results.values()} == {Cause.RESULT_MISMATCH}
    assert {fault.detail for fault in results.values()} == {
        "the record states other counts than this member made"
    }


RARE: dict[str, tuple[dict[str, Any] | None, str]] = {
    "none": (None, "the record gives counts exactly where"),
    "another indicator": ({"indicator": "ab" * 32}, "another indicator round, margin or floor"),
    "another margin": ({"margin": 1}, "another indicator round, margin or floor"),
    "another floor": ({"floor": 2}, "another indicator round, margin or floor"),
    "other counts": ({"holders": (3, 3)}, "not those that the counts leave below the floor"),
}


@pytest.mark.parametrize("how", RARE)
def test_what_a_record_says_of_rare_classes_follows_from_the_terms(
    counting: Counting, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    changes, words = RARE[how]
    true = counting.coordinator.sign

    def lying(*args: Any, **more: Any) -> Any:
        rare = true(*args).rare
        assert rare is not None
        return true(*args, **more, rare=None if changes is None else rare.model_copy(update=changes))

    monkeypatch.setattr(counting.coordinator, "sign", lying)
    _, results = both(counting)
    assert all(words in fault.detail for fault in results.values()), results


def test_a_record_counts_and_leaves_out_classes_that_there_are(counting: Counting) -> None:
    _, results = both(counting)
    result = results["member-0"]

    def verified(file: bytes | None = None, **changes: Any) -> None:
        if file is not None:
            changes["weights_sha256"] = sha256(file).hexdigest()
        record = sign_record(result.record.model_copy(update=changes), counting.coordinator_key)
        replace(result, record=record, weights_file=file or result.weights_file).verify(counting.admin.public)

    def solution(*empty: int) -> Any:
        return result.record.solution.model_copy(update={"empty_classes": empty})

    verified()
    for holders in (
        (3, 2, 1),
        (3, 2, 0, 0),
    ):  # what is stated beyond the head's classes would be withheld as well
        with pytest.raises(PeerFault, match="not those that the counts leave"):
            verified(rare=result.record.rare.model_copy(update={"holders": holders}))
    with pytest.raises(PeerFault, match="counts of 3 classes, the head has 2"):
        verified(rare=result.record.rare.model_copy(update={"holders": (3, 2, 7)}))
    for empty in (2, -1, 0):
        with pytest.raises(PeerFault, match="that the head cannot answer, of 2"):
            verified(solution=solution(empty))
    scored = save({"weights": np.ones((DIM, CLASSES))})
    with pytest.raises(PeerFault, match=r"the head scores classes \[1\], of which there are no records"):
        verified(scored)


def test_a_head_that_overflows_answers_nothing_withheld_either(counting: Counting) -> None:
    """Finite weights whose scores are −∞, like those of the classes left out."""
    _, results = both(counting)
    result = results["member-0"]
    weights = np.zeros((DIM, CLASSES))
    weights[:, 1] = -np.finfo(np.float64).max
    head = replace(
        result,
        weights_file=save({"weights": weights}),
        record=result.record.model_copy(update={"withheld": (0,)}),
    )
    with np.errstate(over="ignore"):
        assert np.isneginf(head.scores(np.ones((5, DIM)))).all()
        assert head.predict(np.ones((5, DIM))).tolist() == [1] * 5


def test_evidence_of_a_round_that_should_have_withheld_is_refused(counting: Counting) -> None:
    _, results = both(counting)
    evidence = results["member-0"].evidence
    published = replace(evidence.opening.terms, indicator=bytes(32), withheld=(), margin=0)
    opening = again(evidence.opening, counting.coordinator_key, terms=published)
    with pytest.raises(PeerFault, match=r"^terms-refused: the admin demands that rare classes are withheld"):
        replace(evidence, opening=opening).verify(counting.admin.public)


# What a member brings


def attempt_of(counting: Counting, **changes: Any) -> Attempt:
    cohort = counting.enrol()
    return counting.coordinator.rounds[counting.coordinator.open_round(cohort, **changes)].phase.attempt


def test_what_a_round_wants_follows_from_its_terms(counting: Counting) -> None:
    attempt = attempt_of(counting)
    wanted = Wanted.of(attempt)
    assert replace(wanted, question=None) == Wanted(CLASSES, DIM)
    assert wanted.question is not None
    assert wanted.question.name == "ffc"
    terms = replace(attempt.opening.terms, indicator=b"i" * 32, withheld=(1,))
    wanted = Wanted.of(replace(attempt, opening=replace(attempt.opening, terms=terms)))
    assert (wanted.withheld, wanted.bias, wanted.dim, wanted.lattice) == ((1,), False, DIM, None)
    other = replace(attempt, opening=replace(attempt.opening, terms=replace(terms, layout=b"{}")))
    with pytest.raises(PeerFault, match=r"^terms-refused"):
        Wanted.of(other)


def test_a_supply_says_early_what_it_lacks(counting: Counting) -> None:
    with pytest.raises(Misuse, match="a lineage needs a name"):
        Supply.of(counting.records("member-0"), "", b"k" * 32)
    assert repr(counting.records("member-0")) == "<Records, 14 of them>"


def test_terms_of_a_size_that_the_records_are_not_of_take_no_memory(
    counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(*_: Any, **__: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr("client_sdk.supply.FFCStatistics", made)
    with pytest.raises(ShapeMismatch, match=r"pass \(n, 65535\)"):
        counting.records("member-0")(Wanted(classes=2, dim=65_535))
    with pytest.raises(ShapeMismatch, match="take more memory than this machine has: ask the operator"):
        counting.records("member-0")(Wanted(classes=65_535, dim=DIM))


def test_an_indicator_can_be_offered_as_it_is_and_other_statistics_cannot(counting: Counting) -> None:
    cohort = counting.enrol()
    attempt = counting.coordinator.rounds[counting.coordinator.open_indicator(cohort)].phase.attempt
    own = counting.kept("member-0")
    plain = Supply.of(own, "main", b"k" * 32).offer(attempt)
    ready = Supply.of(own.indicator(), "main", b"k" * 32).offer(attempt)
    assert isinstance(plain.statistics, ClassIndicator)
    assert (plain.lineage, plain.records) == (ready.lineage, ready.records)
    assert plain.statistics.holds.tolist() == next(ready.statistics.pieces(None, 2)).tolist() == [1, 1]

    class Strange:
        layout, bias, lattice, records, statistic, withheld = own.layout, False, None, 1, "strange", ()
        records_digest, record_digests = own.records_digest, own.record_digests

        def pieces(self, lattice: SumsLattice, elements: int) -> Any:
            return own.pieces(lattice, elements)

    with pytest.raises(Misuse, match="these statistics cannot say"):
        Supply.of(Strange(), "main", b"k" * 32).offer(attempt)
