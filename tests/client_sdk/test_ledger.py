"""A member's own ledger, the federation's, and what neither lets pass."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration import FFCStatistics
from client_sdk.errors import LineageError, NoResult, PeerFault, StateError
from client_sdk.ledger import Account, Grouped, account
from client_sdk.lineages import Lineages, changed_records
from client_sdk.offer import record_hashes
from client_sdk.policy import Policy
from client_sdk.result import Result
from client_sdk.store import Store
from protocol.causes import Cause
from protocol.messages import Ledger, extend_chain
from tests.client_sdk.federation import Federation
from tests.client_sdk.local_coordinator import CLASSES, DIM


@pytest.fixture
def five(tmp_path: Path) -> Any:
    federation = Federation(tmp_path, members=5)
    yield federation
    federation.close()


def ledger(federation: Federation) -> Ledger:
    coordinator = federation.coordinator
    return Ledger(federation.admin.public, coordinator.links, coordinator.history)


def seen(federation: Federation, member: str = "member-0", shown: Ledger | None = None) -> Account:
    return account(Store(federation.folder / member), member, shown or ledger(federation))


def of(rows: Any) -> FFCStatistics:
    statistics = FFCStatistics(DIM, CLASSES, normalise=True)
    statistics.update(rows, (rows[:, 0] > 0).astype(int))
    return statistics


def offered(federation: Federation, round_id: str, rows: Any, lineage: str) -> Any:
    results = federation.together(
        federation.contributions(round_id, federation.ids[1:], lineage)
        | {"member-0": federation.member("member-0").contribute(round_id, of(rows), lineage)}
    )
    return results["member-0"]


# The history


def test_a_new_cohort_goes_on_with_the_same_history(federation: Federation) -> None:
    first = federation.coordinator.open_round(federation.enrol())
    federation.together(federation.contributions(first))
    known = Store(federation.folder / "member-0").history()
    assert len(known.settled) == 1
    second = federation.coordinator.open_round(federation.enrol())
    assert all(isinstance(r, Result) for r in federation.together(federation.contributions(second)).values())
    learned = Store(federation.folder / "member-0").history()
    assert learned.length == 1
    assert learned.head == extend_chain(bytes(32), federation.coordinator.links[:1])
    assert [link.context[:8].hex() for link in learned.settled] == [second]


@pytest.mark.parametrize("keep", [0, 1])
def test_a_new_cohort_with_a_shortened_chain_is_refused(federation: Federation, keep: int) -> None:
    cohort = federation.enrol()
    for _ in range(2):
        round_id = federation.coordinator.open_round(cohort)
        federation.together(federation.contributions(round_id))
    federation.coordinator.links = federation.coordinator.links[:keep]
    federation.coordinator.history = federation.coordinator.history[:keep]
    other = federation.enrol()  # members forget nothing with a new cohort, nor with a new process
    results = federation.together(federation.contributions(federation.coordinator.open_round(other)))
    assert {fault.cause for fault in results.values()} == {Cause.CHAIN_BROKEN}


def test_a_round_under_way_in_one_cohort_keeps_a_member_from_another(federation: Federation) -> None:
    one, two = federation.enrol(), federation.enrol()
    first, second = federation.coordinator.open_round(one), federation.coordinator.open_round(two)
    federation.run_until(federation.contributions(first, ["member-0"])["member-0"], "chunks/1")
    with pytest.raises(PeerFault, match=f"round {first} is still collecting: finish it") as caught:
        federation.alone(federation.contributions(second, ["member-0"])["member-0"])
    assert caught.value.cause is Cause.WRONG_SEQUENCE
    results = federation.together(federation.contributions(first))
    assert all(isinstance(result, Result) for result in results.values())


def test_a_round_missed_in_another_cohort_is_closed_before_the_next(five: Federation) -> None:
    one, two = five.enrol(), five.enrol()
    first = five.coordinator.open_round(one)
    results = five.together(
        five.contributions(first), stuck=five.expiring(first), vanish={"member-4": "chunks/1"}
    )
    assert isinstance(results["member-0"], Result)
    second = five.coordinator.open_round(two)
    results = five.together(five.contributions(second, lineage="other"))
    assert all(isinstance(result, Result) for result in results.values()), results
    assert five.alone(five.contributions(first, ["member-4"])["member-4"]).counted


# Records and their names


def test_a_record_belongs_to_one_lineage(federation: Federation) -> None:
    cohort, rows = federation.enrol(), np.random.default_rng(5).standard_normal((20, DIM))
    assert isinstance(offered(federation, federation.coordinator.open_round(cohort), rows, "a"), Result)
    second = federation.coordinator.open_round(cohort)
    fault = offered(federation, second, rows[15:], "b")
    assert isinstance(fault, LineageError)
    assert "5 of the records offered as lineage 'b' were used as lineage 'a'" in str(fault)
    others = np.random.default_rng(6).standard_normal((20, DIM))
    assert isinstance(offered(federation, second, others, "b"), Result)


def everybody(federation: Federation, round_id: str, count: int) -> list[Any]:
    """How it ends where each member offers its first `count` records."""
    flows = {}
    for index, member in enumerate(federation.ids):
        rows = np.random.default_rng([index, 5]).standard_normal((40, DIM))[:count]
        flows[member] = federation.member(member).contribute(round_id, of(rows), "a")
    return list(federation.together(flows).values())


def test_a_lineage_comes_again_with_the_same_records_or_with_enough_new_ones(federation: Federation) -> None:
    cohort = federation.enrol()
    assert isinstance(everybody(federation, federation.coordinator.open_round(cohort), 20)[0], Result)
    second = federation.coordinator.open_round(cohort)
    fault, *_ = everybody(federation, second, 29)
    assert isinstance(fault, PeerFault)
    assert fault.cause is Cause.POLICY_REFUSED
    assert fault.detail.startswith("changed_records_min: this member wants at least 10 records to change")
    assert fault.detail.endswith("the statistics offer 9 changed")
    assert isinstance(everybody(federation, second, 20)[0], Result)
    third = federation.coordinator.open_round(cohort)
    assert isinstance(everybody(federation, third, 30)[0], Result)
    lineages = Store(federation.folder / "member-0").lineages.all()
    assert [(each.name, each.family, len(each.versions)) for each in lineages] == [("a", "exact", 2)]


def test_a_policy_may_let_every_change_pass(federation: Federation) -> None:
    federation.policy = Policy(federation.admin.public, changed_records_min=0)
    cohort = federation.enrol()
    for count in (19, 20):
        results = everybody(federation, federation.coordinator.open_round(cohort), count)
        assert all(isinstance(result, Result) for result in results), results


def test_what_went_into_a_voided_attempt_was_not_opened(federation: Federation) -> None:
    cohort, rows = federation.enrol(), np.random.default_rng(5).standard_normal((20, DIM))
    first = federation.coordinator.open_round(cohort)
    flows = federation.contributions(first, federation.ids[1:])
    flows["member-0"] = federation.member("member-0").contribute(first, of(rows), "a")
    for flow in flows.values():
        federation.run_until(flow, "PUT")
    folder = federation.folder / "member-0/state/lineages"
    assert len(list(folder.glob("*-*"))) == 1
    federation.coordinator.cancel(first)
    federation.together(federation.contributions(first, federation.ids[1:]))
    second = federation.coordinator.open_round(cohort)
    # It vanished before it heard of the end: now it does, and the records are free again.
    assert isinstance(offered(federation, second, rows[1:], "b"), Result)
    assert [each.name for each in Store(federation.folder / "member-0").lineages.all()] == ["b"]
    assert len(list(folder.glob("*-*"))) == 1


def test_a_lineage_is_exact_or_noisy_for_life(federation: Federation) -> None:
    round_id = federation.coordinator.open_round(federation.enrol())
    federation.together(federation.contributions(round_id))
    session = federation.member("member-0").session
    offer = replace_offer(federation)
    with pytest.raises(LineageError, match="was used in exact rounds, and this one is noisy"):
        session.store.lineages.check(offer, "noisy", b"c" * 32, federation.policy)


def test_a_count_goes_with_exact_sums_alone(federation: Federation) -> None:
    federation.together(federation.contributions(federation.coordinator.open_round(federation.enrol())))
    lineages, offer = federation.member("member-0").session.store.lineages, replace_offer(federation)
    # exact already, and a count changes nothing about it
    lineages.check(offer, "indicator", b"c" * 32, federation.policy)
    lineages.use(offer, "indicator", b"c" * 32)
    assert [each.family for each in lineages.all()] == ["exact"]
    forget(lineages)
    # counted first, it may be exact, and never noisy, whatever is counted or summed after
    lineages.use(offer, "indicator", b"d" * 32)
    assert [each.family for each in lineages.all()] == ["indicator"]
    for family in ("indicator", "exact"):
        lineages.check(offer, family, b"e" * 32, federation.policy)
        with pytest.raises(LineageError, match=f"was used in {lineages.all()[0].family} rounds"):
            lineages.check(offer, "noisy", b"f" * 32, federation.policy, charged=0.3)
        lineages.use(offer, family, b"e" * 32)
    forget(lineages)
    # noisy first, it is not counted
    lineages.use(offer, "noisy", b"g" * 32, charged=0.3)
    with pytest.raises(LineageError, match="was used in noisy rounds, and this one is indicator"):
        lineages.check(offer, "indicator", b"h" * 32, federation.policy)


def forget(lineages: Lineages) -> None:
    for lineage in lineages.all():
        for version in lineage.versions:
            for context in version.contexts:
                lineages.release(context)
    assert lineages.all() == ()


def replace_offer(federation: Federation) -> Any:
    from client_sdk.offer import Offer  # noqa: PLC0415 - beside its one use

    key = federation.open["member-0"].session.store.lineage_key()
    return Offer.of(federation.statistics("member-0"), "main", key)


def test_records_are_kept_as_hashes_under_a_key(federation: Federation) -> None:
    round_id = federation.coordinator.open_round(federation.enrol())
    federation.together(federation.contributions(round_id))
    digests = federation.statistics("member-0").record_digests
    stored = b"".join(path.read_bytes() for path in (federation.folder / "member-0/state/lineages").iterdir())
    for start in range(0, len(digests), 16):
        digest = digests[start : start + 16]
        assert digest[:8] not in stored
        assert hashlib.blake2b(digest, digest_size=8).digest() not in stored
    assert set(record_hashes(b"k" * 32, digests)).isdisjoint(record_hashes(b"l" * 32, digests))
    assert len(record_hashes(b"k" * 32, b"")) == 0


def test_changes_are_counted_with_repeats() -> None:
    def hashes(*values: int) -> Any:
        return np.array(values, np.uint64)

    assert changed_records(hashes(1, 2, 2), hashes(1, 2, 2)) == 0
    assert changed_records(hashes(1, 2, 2), hashes(1, 2)) == 1
    assert changed_records(hashes(1, 2), hashes(3, 4)) == 4
    assert changed_records(hashes(), hashes(3)) == 1


def test_a_damaged_ledger_of_records_is_refused(federation: Federation) -> None:
    cohort = federation.enrol()
    federation.together(federation.contributions(federation.coordinator.open_round(cohort)))
    index = federation.folder / "member-0/state/lineages/index"
    whole = index.read_bytes()
    index.write_bytes(whole[:-1] + b"!")
    second = federation.coordinator.open_round(cohort)
    with pytest.raises(StateError, match="is damaged"):
        federation.alone(federation.contributions(second, ["member-0"])["member-0"])
    content = b'[{"name": 1}]'
    index.write_bytes(whole[:16] + hashlib.sha256(content).digest() + content)
    with pytest.raises(StateError, match="not of this release"):
        federation.alone(federation.contributions(second, ["member-0"])["member-0"])


# Exceptions


def test_an_exception_is_refused_by_whom_it_names_unless_its_policy_allows(five: Federation) -> None:
    cohort = five.enrol()
    five.together(five.contributions(five.coordinator.open_round(cohort)))
    exception = five.exception(cohort, 1, ["member-4"])
    second = five.coordinator.open_round(cohort, exceptions=(exception,))
    with pytest.raises(PeerFault) as caught:
        five.alone(five.contributions(second, ["member-4"])["member-4"])
    assert caught.value.cause is Cause.POLICY_REFUSED
    assert caught.value.detail == (
        "accept_exceptions: this member wants no exception to the ledger that names it, the admin offers one for "
        "member-4: a test"
    )
    results = five.together(five.contributions(second, five.ids[:4]), stuck=five.expiring(second))
    assert all(isinstance(result, Result) for result in results.values()), results
    results["member-0"].verify(five.admin.public)
    forged = replace(exception, reason="another")
    opening = replace(results["member-0"].evidence.opening, exceptions=(forged,))
    evidence = replace(results["member-0"].evidence, opening=opening)
    with pytest.raises(PeerFault):
        evidence.verify(five.admin.public)


def test_a_policy_may_accept_an_exception(five: Federation) -> None:
    five.policy = Policy(five.admin.public, accept_exceptions=True)
    cohort = five.enrol()
    exception = five.exception(cohort, 0, ["member-4"])
    round_id = five.coordinator.open_round(cohort, exceptions=(exception,))
    results = five.together(five.contributions(round_id))
    assert all(isinstance(result, Result) for result in results.values())


# What is shown of it


def test_the_account_of_a_federation(five: Federation) -> None:
    cohort = five.enrol()
    first = five.coordinator.open_round(cohort)
    five.together(five.contributions(first))
    second = five.coordinator.open_round(cohort)
    results = five.together(five.contributions(second, five.ids[:4]), stuck=five.expiring(second))
    assert {result.cause for result in results.values()} == {Cause.LEDGER_REFUSED}
    assert f"would stand alone in 1 rounds: member-4 (rounds {first})" in str(results["member-0"])
    third = five.coordinator.open_round(cohort)
    five.together(five.contributions(third, five.ids[:4], "other"), stuck=five.expiring(third))
    shown = seen(five)
    assert [(r.round_id, r.ended, r.why, r.sets, r.own) for r in shown.rounds] == [
        (first, "sum", "", (5,), ("main",)),
        (second, "void", "ledger-refused", (), ()),
        (third, "sum", "", (4,), ("other",)),
    ]
    assert shown.floor == 4
    assert {g.floor for g in shown.groups} == {4}
    groups = {(g.reading, g.members, g.rounds) for g in shown.groups}
    assert groups == {
        (reading, members, (name,))
        for reading in ("by lineage", "by version")
        for members, name in ((five.ids, first), (five.ids[:4], third))
    }
    assert [each.name for each in shown.lineages] == ["main", "other"]
    assert shown.refused_next() == (
        f"a sum in exact rounds over some but not all of {', '.join(five.ids)}",
        f"a sum in exact rounds over some but not all of {', '.join(five.ids[:4])}",
        "a sum with new lineages of fewer than 4 members",
    )
    assert seen(five, "member-4").rounds[0].own == ("main",)


def test_the_coordinators_ledger_is_held_against_the_members_own_chain(federation: Federation) -> None:
    cohort = federation.enrol()
    for _ in range(2):
        federation.together(federation.contributions(federation.coordinator.open_round(cohort)))
    whole = ledger(federation)
    assert len(seen(federation).rounds) == 2
    for forged, cause in (
        (replace(whole, links=(), history=()), Cause.CHAIN_BROKEN),
        (replace(whole, links=whole.links[:1], history=whole.history[:1]), Cause.CHAIN_BROKEN),
        (replace(whole, links=whole.links[::-1], history=whole.history[::-1]), Cause.CHAIN_BROKEN),
        (replace(whole, history=whole.history[::-1]), Cause.CHAIN_BROKEN),
        (replace(whole, federation=b"x" * 32), Cause.WRONG_FEDERATION),
    ):
        with pytest.raises(PeerFault) as caught:
            seen(federation, shown=forged)
        assert caught.value.cause is cause


def test_without_a_coordinator_the_account_is_this_members_own(federation: Federation) -> None:
    empty = account(Store(federation.folder / "member-0"), "member-0", None)
    assert (empty.rounds, empty.lineages, empty.floor) == ((), (), 3)
    round_id = federation.coordinator.open_round(federation.enrol())
    federation.run_until(federation.contributions(round_id, ["member-0"])["member-0"], "chunks/0")
    own = account(Store(federation.folder / "member-0"), "member-0", None)
    assert own.waiting == (round_id,)
    assert own.refused_next()[0] == f"any round, before this member is shown how round {round_id} ended"


def test_a_spent_lineage_is_named(federation: Federation) -> None:
    cohort = federation.enrol()
    round_id = federation.coordinator.open_round(cohort)
    for flow in federation.contributions(round_id).values():
        federation.run_until(flow, "PUT")
    federation.coordinator.cancel(round_id)
    federation.clock.now_s += 2 * 86_400
    federation.coordinator.expire(round_id)
    federation.coordinator.lose(round_id, federation.admin)
    with pytest.raises(NoResult, match="closed by the admin"):
        federation.alone(federation.contributions(round_id, ["member-0"])["member-0"])
    shown = seen(federation)
    assert shown.spent == ("main",)
    assert [each.ended for each in shown.rounds] == ["lost"]
    assert "lineage main in an exact round" in shown.refused_next()[0]


def test_large_groups_may_be_split_in_large_parts(tmp_path: Path) -> None:
    federation = Federation(tmp_path, members=8)
    federation.policy = Policy(federation.admin.public, colluders_min=0)
    round_id = federation.coordinator.open_round(federation.enrol(colluders=0))
    federation.together(federation.contributions(round_id))
    assert (
        seen(federation)
        .refused_next()[0]
        .startswith("a sum in exact rounds over fewer than 3, or all but fewer than 3, of member-0")
    )
    federation.close()


@pytest.mark.parametrize(
    ("floor", "part"),
    [
        (4, "fewer than 4, or all but fewer than 3,"),
        (2, "fewer than 3, or all but fewer than 3,"),
        (6, "some but not all"),
    ],
)
def test_a_part_that_leaves_a_group_is_held_to_the_g_of_its_rounds(floor: int, part: str) -> None:
    names = tuple("abcdefgh")
    group = Grouped("exact", "by lineage", names, ("0" * 16,), 3)
    refused = Account(floor, (), (group,), (), (), ()).refused_next()
    assert refused[0] == f"a sum in exact rounds over {part} of {', '.join(names)}"


def test_a_closing_that_closes_nothing_is_refused(five: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    cohort = five.enrol()
    first = five.coordinator.open_round(cohort)
    five.run_until(five.contributions(first, ["member-0"])["member-0"], "chunks/0")
    five.clock.now_s += 2 * 86_400
    five.coordinator.cohorts[cohort].place = (1, 0)
    second = five.coordinator.open_round(cohort)
    opening = five.coordinator.rounds[first].phase.attempt.opening
    for message, cause in ((opening, Cause.UNKNOWN_MESSAGE),):
        monkeypatch.setattr(
            five.coordinator,
            "_closing",
            lambda _request, context, message=message: five.coordinator._opening(_request, first),
        )
        with pytest.raises(PeerFault) as caught:
            five.alone(five.contributions(second, ["member-0"])["member-0"])
        assert caught.value.cause is cause
