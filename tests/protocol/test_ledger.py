"""The ledger rule attacked (protocol §8)."""

import pickle
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.ledger import (
    ForkFault,
    Group,
    LedgerFault,
    Opened,
    by_lineage,
    by_version,
    check_forks,
    check_ledger,
    groups,
    opened_sets,
)
from protocol.messages import Family, LedgerException, Link, Past, SurvivorSet, Terms
from tests.protocol.columns import Column, context, sums, survivors
from tests.protocol.messages.forms import sample

TWELVE = "abcdefghijkl"
G = 3


def sum_of(columns: Iterable[Column], family: str = Family.EXACT) -> Opened:
    """A round to come."""
    return Opened(context(99), family, G, survivors(columns, 99))


def refused(*rounds: Iterable[Column], floor: int = G, exceptions: Sequence[LedgerException] = ()) -> Group:
    """The group for which the last round is refused after the others."""
    *opened, proposal = sums(*rounds, floor=floor)
    with pytest.raises(LedgerFault) as caught:
        check_ledger(opened, proposal, exceptions)
    return caught.value.group


def admitted(*rounds: Iterable[Column], floor: int = G, exceptions: Sequence[LedgerException] = ()) -> None:
    """The last round is signed after the others."""
    *opened, proposal = sums(*rounds, floor=floor)
    check_ledger(opened, proposal, exceptions)


def exception(members: str) -> LedgerException:
    made: LedgerException = sample(LedgerException)
    return replace(made, members=tuple(members))


# What is refused, and for whom.


def test_one_member_more_is_that_member() -> None:
    assert refused("abcdef", "abcdefg") == Group(("g",), (context(2),), G)
    assert refused("abcdefg", "abcdef") == Group(("g",), (context(1),), G)


def test_three_rounds_expose_whom_no_two_do() -> None:
    p, q = "abcdef", "ghijkl"
    admitted(p + "u", q)
    assert refused(p + "u", q, p + q) == Group(("u",), (context(1),), G)
    # without u nothing is left over
    admitted(p, q, p + q)


def test_in_whatever_order_the_three_come() -> None:
    p, q = "abcdef", "ghijkl"
    assert refused(p + q, q, p + "u").members == ("u",)
    assert refused(p + q, p + "u").members == ("u",)


def test_a_first_round_below_the_floor_is_refused() -> None:
    assert refused("ab") == Group(("a", "b"), (context(1),), G)
    admitted("abc")


def test_the_same_set_again_changes_nothing() -> None:
    admitted(*["abcdef"] * 5)
    admitted("abcdef", "abcghi", *["abcdef"] * 3, "abcghi")


def test_groups_of_g_are_let_pass_and_one_less_is_not() -> None:
    admitted("abcdef", "abcdefghi")
    assert refused("abcdef", "abcdefgh").members == ("g", "h")
    admitted("abcdef", "abcdefgh", floor=2)
    assert refused("abcdefghi", "abcdef", floor=4).members == ("g", "h", "i")


def test_the_smallest_group_is_named_with_the_rounds_that_hold_it() -> None:
    fault = refused("abcdefgh", "abcdefi", "abcdefghi")
    assert fault == Group(("i",), (context(2), context(3)), G)


def test_what_was_small_before_still_is() -> None:
    # the two rounds may only be taken as opened: then the third could be the one that opens u
    assert refused("abcdef", "abcdefu", "abcxyz") == Group(("u",), (context(2),), G)


# Each group is held to the largest g of its rounds.


def under(floor: int, columns: str, number: int) -> Opened:
    """A round of a cohort with this g."""
    return replace(sums(columns, floor=floor)[0], context=context(number))


def test_who_stays_behind_is_held_to_the_g_of_the_round_they_were_in() -> None:
    with pytest.raises(LedgerFault, match=r"the columns of 5 members, g is 7,") as caught:
        check_ledger([under(7, "abcdefghijklmnop", 1)], under(5, "abcdefghijk", 2))
    assert caught.value.group == Group(tuple("lmnop"), (context(1),), 7)
    check_ledger([under(7, "abcdefghijklmnop", 1)], under(5, "abcdefghi", 2))


def test_who_comes_anew_is_held_to_the_g_of_the_round_they_come_to() -> None:
    older, newer = under(5, "abcdefghijk", 1), under(7, "abcdefghijklmnop", 2)
    with pytest.raises(LedgerFault, match=r"the columns of 5 members, g is 7,"):
        check_ledger([older], newer)
    check_ledger([older], under(7, "abcdefghijklmnopqr", 2))


@pytest.mark.parametrize("floors", [(3, 7), (7, 3)])
def test_of_two_rounds_the_larger_g_counts(floors: tuple[int, int]) -> None:
    first, second = (under(floor, TWELVE[:6], number) for number, floor in enumerate(floors, 1))
    with pytest.raises(LedgerFault, match=r"the columns of 6 members, g is 7,"):
        check_ledger([first], second)


def test_a_round_that_never_was_lowers_no_floor() -> None:
    known, invented = under(7, "abcdefghijklmnop", 1), under(0, "lmnop", 9)
    with pytest.raises(LedgerFault, match=r"the columns of 5 members, g is 7,"):
        check_ledger([known, invented], under(5, "abcdefghijk", 2))


# What hides nothing.


def test_eleven_members_with_a_record_more_give_the_absent_twelfth() -> None:
    after: list[Column] = [(member, 0, 1) for member in TWELVE[:-1]]
    assert refused(TWELVE, after) == Group(("l",), (context(1),), G)
    # the versions alone would have let it pass
    versions = groups(sums(TWELVE, after), by_version)
    assert sorted(len(group.members) for group in versions) == [11, 12]


def test_all_twelve_with_a_record_more_show_the_sum_of_the_changes_only() -> None:
    admitted(TWELVE, [(member, 0, 1) for member in TWELVE])


@pytest.mark.parametrize("changed", [1, 2])
def test_fewer_than_g_members_with_other_records_show_what_changed(changed: int) -> None:
    after: list[Column] = [(member, 0, int(place < changed)) for place, member in enumerate(TWELVE)]
    assert refused(TWELVE, after).members == tuple(TWELVE[:changed])
    # the lineages alone would have let it pass
    assert [len(group.members) for group in groups(sums(TWELVE, after), by_lineage)] == [12]


def test_g_members_with_other_records_hide_among_each_other() -> None:
    admitted(TWELVE, [(member, 0, int(place < G)) for place, member in enumerate(TWELVE)])


def test_a_record_back_and_forth_is_seen_in_the_third_round() -> None:
    changed: list[Column] = [*"defghijkl", ("a", 0, 1), ("b", 0, 1), ("c", 0, 1)]
    back: list[Column] = [*"defghijkl", "a", ("b", 0, 1), ("c", 0, 1)]
    admitted(TWELVE, changed)
    assert refused(TWELVE, changed, back).members == ("a",)


def test_a_member_twice_in_a_group_counts_once() -> None:
    # two lineages of each: four columns, two members
    doubled: list[Column] = ["a", "b", ("a", 1), ("b", 1)]
    assert refused([*"cdef", *doubled], "cdef").members == ("a", "b")


def terms(**changes: Any) -> Terms:
    return Terms(**{**vars(sample(Terms)), "noise": b"", **changes})


@pytest.mark.parametrize(
    "other",
    [
        terms(extractor=b"\xfe" * 32),
        terms(layout=b"other"),
        terms(lattice="features", lattice_bits=12),
        terms(ring_bits=64),
        terms(statistic="ccvr"),
        terms(ridges=(), chunk_elements=64),
        terms(margin=9, withheld=(1, 2)),
    ],
    ids=["extractor", "layout", "lattice", "ring", "statistic", "ridges", "withheld"],
)
def test_another_extractor_layout_or_lattice_is_the_same_account(other: Terms) -> None:
    first, second = (
        Opened(context(n), t.family, G, survivors(columns))
        for n, t, columns in ((1, terms(), TWELVE), (2, other, TWELVE[:-1]))
    )
    with pytest.raises(LedgerFault, match=r"^ledger-refused: .*\[l\]$"):
        check_ledger([first], second)


# Accounts that do not meet.


def test_indicators_have_an_account_of_their_own() -> None:
    indicators = sums("abcdef", family=Family.INDICATOR)
    check_ledger(indicators, sum_of("abcdefg"))
    check_ledger(sums("abcdef"), sum_of("abcdefg", Family.INDICATOR))


def test_indicators_are_held_to_the_rule_among_themselves() -> None:
    first, second = sums("abcdef", "abcdefg", family=Family.INDICATOR)
    with pytest.raises(LedgerFault, match=r"^ledger-refused: .*\[g\]$"):
        check_ledger([first], second)


def test_noisy_sums_are_not_held_to_it() -> None:
    first, second = sums("abcdef", "abcdefg", family=Family.NOISY)
    check_ledger([first], second)


MIXED = [("noisy", "exact"), ("exact", "noisy"), ("noisy", "indicator"), ("indicator", "noisy")]


@pytest.mark.parametrize(("before", "after"), MIXED)
def test_a_lineage_is_noisy_for_life_or_never(before: str, after: str) -> None:
    opened = sums("abcdef", family=before)
    for columns in ("efghij", [*"ghij", ("e", 0, 1), ("f", 0, 7)]):
        with pytest.raises(PeerFault) as caught:
            check_ledger(opened, sum_of(columns, after))
        assert caught.value.cause is Cause.LINEAGE_MIXED
        assert caught.value.parties == ("e", "f")
        assert f"in {'noisy' if before == 'noisy' else 'exact or indicator'} rounds" in caught.value.detail
    check_ledger(opened, sum_of("ghijkl", after))


@pytest.mark.parametrize(("before", "after"), MIXED)
def test_another_lineage_of_the_same_members_is_free(before: str, after: str) -> None:
    check_ledger(sums("abcdef", family=before), sum_of([(m, 1) for m in "abcdef"], after))


def test_exact_sums_and_counts_stand_beside_each_other() -> None:
    check_ledger(sums("abcdef"), sum_of("abcdef", Family.INDICATOR))
    check_ledger(sums("abcdef", family=Family.INDICATOR), sum_of("abcdef"))


def test_mixing_is_named_before_a_small_group() -> None:
    opened = [*sums("abcdef"), *sums("uvw", family=Family.NOISY)]
    with pytest.raises(PeerFault, match=r"^lineage-mixed: .*\[u\]$"):
        check_ledger(opened, sum_of("abcdefu"))


def test_a_noisy_history_has_no_weight_in_an_exact_account() -> None:
    noisy = sums("abcdef", "abcdefg", family=Family.NOISY)
    check_ledger(noisy, sum_of([(m, 1) for m in "abcdefg"]))


def test_periods_never_meet_older_columns() -> None:
    for last in ("abcdef", "abcdefghijkl", "cdefgh"):
        admitted(TWELVE, [(m, 1) for m in "abcdefgh"], [(m, 2) for m in last])


def test_who_missed_a_period_brings_its_records_in_the_next() -> None:
    later: list[Column] = [(m, 1) for m in TWELVE]
    admitted(TWELVE[:-1], later)
    # under the lineage of the period that it missed it would stand alone
    assert refused(TWELVE[:-1], [*"abcdefghijk", ("l", 1)]).members == ("l",)


# Exceptions.


def test_an_exception_that_names_the_group_lets_it_pass() -> None:
    admitted("abcdef", "abcdefgh", exceptions=[exception("gh")])
    admitted("abcdef", "abcdefgh", exceptions=[exception("z"), exception("gh")])


@pytest.mark.parametrize("named", [[], ["g"], ["h"], ["a"], [""], ["g", "h"], ["abcdef"], ["ghi"], ["fgh"]])
def test_an_exception_for_part_of_it_or_for_more_does_not(named: list[str]) -> None:
    group = refused("abcdef", "abcdefgh", exceptions=[exception(members) for members in named])
    assert group.members == ("g", "h")


def test_an_exception_for_one_group_is_none_for_another() -> None:
    rounds = ("abcdef", "abcdefu", "abcdefv")
    assert refused(*rounds, exceptions=[exception("u")]).members == ("v",)
    assert refused(*rounds, exceptions=[exception("v")]).members == ("u",)
    assert refused(*rounds, exceptions=[exception("uv")]).members == ("u",)
    admitted(*rounds, exceptions=[exception("u"), exception("v")])


def test_an_exception_is_no_licence_for_the_next_round() -> None:
    admitted("abcdef", "abcdefu", exceptions=[exception("u")])
    assert refused("abcdef", "abcdefu", "abcdef").members == ("u",)
    admitted("abcdef", "abcdefu", "abcdef", exceptions=[exception("u")])


def test_an_exception_does_not_excuse_mixing() -> None:
    with pytest.raises(PeerFault, match=r"^lineage-mixed:"):
        check_ledger(sums("abc", family=Family.NOISY), sum_of("abc"), [exception("abc")])


# The two readings, and the fault.


def test_a_version_is_a_lineage_with_its_records() -> None:
    [one] = survivors("a")
    others = (replace(one, lineage=b"\xee" * 8), replace(one, records=b"\xee" * 8))
    assert [by_lineage(other) == by_lineage(one) for other in others] == [False, True]
    assert [by_version(other) == by_version(one) for other in others] == [False, False]


def test_the_fault_names_the_group_and_its_rounds() -> None:
    *opened, proposal = sums("abcdef", "abcdefgh")
    with pytest.raises(LedgerFault) as caught:
        check_ledger(opened, proposal)
    fault = caught.value
    assert fault.cause is Cause.LEDGER_REFUSED
    assert fault.parties == ("g", "h")
    assert fault.group == Group(("g", "h"), (context(2),), G)
    assert "the columns of 2 members, g is 3, would stand alone in 1 rounds: g, h" in str(fault)


# The history that the chain binds.


def past(number: int, *sets: str, reason: str = "none") -> Past:
    return Past(context(number), reason, tuple(SurvivorSet(survivors(each, number)) for each in sets))


def chain(pasts: Iterable[Past], family: str = "exact", cohort: int = 0xCC) -> tuple[Link, ...]:
    """What an opening's links say of such a history, a sequence number each."""
    return tuple(
        Link(bytes([cohort]) * 32, place, 0, family, G, one.context, one.closing)
        for place, one in enumerate(pasts)
    )


HISTORY = [past(1, "abcdef"), past(2, reason="cancelled"), past(3, "abcdef")]


def test_certified_sets_are_opened_and_those_of_void_are_not() -> None:
    assert opened_sets(chain(HISTORY), HISTORY) == (
        Opened(context(1), "exact", G, survivors("abcdef", 1)),
        Opened(context(3), "exact", G, survivors("abcdef", 3)),
    )
    assert opened_sets((), ()) == ()


def test_a_fresh_cohort_opens_no_fresh_account() -> None:
    opened = opened_sets(chain(HISTORY, cohort=0x01), HISTORY)
    with pytest.raises(LedgerFault, match=r"\[g\]$"):
        check_ledger(opened, Opened(context(9), "exact", G, survivors("abcdefg")))


def test_the_family_of_an_opened_set_is_its_link_s() -> None:
    for family in Family:
        opened = opened_sets(chain(HISTORY, family), HISTORY)
        assert {each.family for each in opened} == {family}


@pytest.mark.parametrize(
    "shown",
    [
        HISTORY[:2],
        HISTORY[1:],
        [HISTORY[0], HISTORY[2]],
        [HISTORY[0], HISTORY[2], HISTORY[1]],
        [*HISTORY, past(4, "abcdef")],
        [past(1, "abcde"), *HISTORY[1:]],
        [past(1, "abcdef", "ghi"), *HISTORY[1:]],
        [replace(HISTORY[0], reason="lost"), *HISTORY[1:]],
        [past(1, reason="cancelled"), *HISTORY[1:]],
        [HISTORY[0], past(2, reason="quorum-lost"), HISTORY[2]],
        [replace(HISTORY[0], context=context(8)), *HISTORY[1:]],
        [],
    ],
    ids=[
        "cut-behind",
        "cut-before",
        "skipped",
        "swapped",
        "longer",
        "member-left-out",
        "set-added",
        "other-reason",
        "sum-as-void",
        "void-for-another-reason",
        "other-context",
        "nothing",
    ],
)
def test_a_history_that_does_not_follow_from_the_links_is_refused(shown: list[Past]) -> None:
    with pytest.raises(PeerFault, match=r"^chain-broken: .*\[coordinator\]$"):
        opened_sets(chain(HISTORY), shown)


@pytest.mark.parametrize("field", ["lineage", "records", "digest"])
def test_a_history_with_another_survivor_is_refused(field: str) -> None:
    first, *rest = HISTORY[0].sets[0].survivors
    change: dict[str, Any] = {field: b"\xee" * len(getattr(first, field))}
    shown = [replace(HISTORY[0], sets=(SurvivorSet((replace(first, **change), *rest)),)), *HISTORY[1:]]
    with pytest.raises(PeerFault, match=r"^chain-broken:"):
        opened_sets(chain(HISTORY), shown)


def test_what_was_small_in_rounds_apart_does_not_stand_in_the_way() -> None:
    admitted("abcdef", "abcdefu", "vwxyz")
    admitted("abcdef", "abcdefu", [(m, 1) for m in "abcdefu"])
    # h links the second round to the third, which the proposal touches
    assert refused("abcdef", "abch", "hij", "ijk").members == ("h",)


def test_the_fault_survives_pickling() -> None:
    fault = LedgerFault(Group(("g",), (context(1),), G))
    copy = pickle.loads(pickle.dumps(fault))
    assert (copy.group, str(copy)) == (fault.group, str(fault))


@pytest.mark.parametrize("colluders", [0, 2, 4])
def test_half_of_an_older_group_and_its_colluders_is_too_little(colluders: int) -> None:
    """Two sums of (|G| + a)/2 members each can share a colluder and nobody else: it takes one more."""
    half = (len(TWELVE) + colluders) // 2
    (opened,) = sums(TWELVE)
    with pytest.raises(ForkFault):
        check_forks([opened], sum_of(TWELVE[:half]), colluders)
    check_forks([opened], sum_of(TWELVE[: half + 1]), colluders)
