"""All ways in which decryptors of small committees can end an attempt after its latest end (wire: Ends).

The tests first count them, for every possible threshold of a committee, then play them with real members' reports and the real coordinator.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import pytest

from tests.support.forging import erased
from tests.support.simulator import Federation, of
from veilsum.protocol.coordinator import (
    CoordinatorPhase,
    Erasing,
    Failed,
    Freezing,
    Recovered,
    Revealing,
    VoidedByErasure,
)
from veilsum.protocol.messages import NOTHING_REVEALED, Erased, ErasureRequest, Reveal
from veilsum.protocol.sizing import Quorum

SIZES = range(2, 10)
SLOW = pytest.mark.slow


def committees() -> Iterator[tuple[int, int, int, int]]:
    """Yield L, a_D, t and q of every committee that has t decryptors."""
    for decryptors in SIZES:
        for colluders in range(decryptors):
            threshold = (decryptors + colluders) // 2 + 1
            if threshold <= decryptors:
                quorum = Quorum(9, decryptors, colluders, colluders, 3, 3, threshold)
                yield decryptors, colluders, threshold, quorum.erasures_min


def splits(decryptors: int, colluders: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield how many honest decryptors revealed, how many of these and of the others return, and how many colluders lie.

    Votes don't matter: later actions of a decryptor don't depend on them.
    """
    honest = decryptors - colluders
    for revealed in range(honest + 1):
        yield from (
            (revealed, told, silent, lying)
            for told, silent, lying in product(
                range(revealed + 1), range(honest - revealed + 1), range(colluders + 1)
            )
        )


@pytest.mark.parametrize(("decryptors", "colluders", "threshold", "needed"), list(committees()))
def test_an_erasure_and_a_sum_never_exist_together(
    decryptors: int, colluders: int, threshold: int, needed: int
) -> None:
    for revealed, _told, silent, lying in splits(decryptors, colluders):
        # a colluder that reports no reveal may have revealed all the same
        erased_ = silent + lying >= needed
        summed = revealed + colluders >= threshold
        assert not (erased_ and summed), (revealed, silent, lying)
    # one report fewer is not enough
    assert any(
        silent + lying >= needed - 1 and revealed + colluders >= threshold
        for revealed, _told, silent, lying in splits(decryptors, colluders)
    )


@pytest.mark.parametrize(("decryptors", "colluders", "threshold", "needed"), list(committees()))
def test_honest_decryptors_that_revealed_nothing_end_an_attempt_by_themselves(
    decryptors: int, colluders: int, threshold: int, needed: int
) -> None:
    assert needed <= threshold
    for revealed, _told, silent, _lying in splits(decryptors, colluders):
        if revealed == 0 and silent == decryptors - colluders:
            assert (silent >= needed) == (decryptors >= 3 * colluders)


# Played


@dataclass(frozen=True)
class Stage:
    """An attempt after its latest end, and each decryptor's possible reports.

    Attributes:
        certified: the coordinator's phase with a certificate, and without reveals.
        bare: the coordinator's phase without a certificate.
        reveals: by decryptor, for a coordinator that still gets a reveal in time.
        silent: reports of decryptors that never saw a certificate.
        told: reports of decryptors that revealed.
    """

    federation: Federation
    certified: Erasing
    bare: Erasing
    revealing: Revealing
    reveals: tuple[Reveal, ...]
    silent: tuple[Erased, ...]
    told: tuple[Erased, ...]


def allowed() -> Iterator[tuple[int, int]]:
    """Yield L and a_D of every allowed committee: two nominees, or all members."""
    yield 2, 0
    yield from ((members, a) for members in range(3, 10) for a in range(members // 4, members - 2))


def stage(decryptors: int, colluders: int) -> Stage:
    """Take decryptors up to their votes. Each then reports in two ways: without a reveal, whether or not it voted, and with one."""
    nominees = () if decryptors > 2 else (0, 1)
    federation = Federation(max(3, decryptors), colluders=colluders, decryptors=nominees)
    freezing = federation.reach(Freezing)
    latest_end_s = freezing.attempt.terms.latest_end_s
    request = ErasureRequest(freezing.attempt.context)
    before = dict(federation.phases)
    revealing = federation.run_until(Revealing)
    assert isinstance(freezing, Freezing)
    assert isinstance(revealing, Revealing)
    reveals, silent, told = [], [], []
    for member in freezing.attempt.decryptors:
        key = federation.keys[member]
        voted, _ = before[member].receive(freezing.proposal, key, federation.now_s)
        closed, (reveal,) = voted.receive(revealing.certificate, key, federation.now_s)
        _, (one,) = before[member].receive(request, key, latest_end_s)
        _, (other,) = voted.receive(request, key, latest_end_s)
        _, (last,) = closed.receive(request, key, latest_end_s)
        assert one.to_bytes() == other.to_bytes()  # a vote changes no report
        assert isinstance(reveal, Reveal)
        assert isinstance(one, Erased)
        assert isinstance(last, Erased)
        assert (one.revealed, last.revealed) == (NOTHING_REVEALED, revealing.certificate.outcome)
        reveals.append(reveal)
        silent.append(one)
        told.append(last)
    certified, bare = (phase.pass_deadline(latest_end_s) for phase in (revealing, freezing))
    assert isinstance(certified, Erasing)
    assert isinstance(bare, Erasing)
    return Stage(federation, certified, bare, revealing, tuple(reveals), tuple(silent), tuple(told))


def received(phase: CoordinatorPhase, reports: list[Erased]) -> CoordinatorPhase:
    for report in reports:
        phase = phase.receive(report, 0.0)
    return phase


PLAYED = [pytest.param(*each, marks=[SLOW] if each[0] > 6 else []) for each in allowed()]


@pytest.mark.parametrize(("members", "colluders"), PLAYED)
def test_every_split_of_vote_reveal_lie_and_return_ends_as_it_must(members: int, colluders: int) -> None:
    at = stage(members, colluders)
    quorum = at.certified.attempt.quorum
    assert (quorum.decryptors, quorum.decryptor_colluders) == (members, colluders)
    honest, needed = members - colluders, quorum.erasures_min
    for revealed, told, silent, lying in splits(members, colluders):
        # Honest decryptors come first: those that revealed, then the others. All colluders revealed; some admit it, the others stay away.
        quiet = list(at.silent[revealed : revealed + silent]) + list(at.silent[honest : honest + lying])
        for owning in (0, colluders - lying):
            loud = list(at.told[:told]) + list(at.told[honest + lying : honest + lying + owning])
            for reports in (quiet + loud, loud + quiet):
                end = received(at.certified, reports)
                if len(quiet) >= needed:
                    assert isinstance(end, VoidedByErasure)
                    assert revealed + colluders < quorum.threshold  # too few shares for the sum
                    end.attempt.check_erasure(end.closing)
                elif members - len(loud) < needed:
                    assert isinstance(end, Failed)  # a repeat may follow, without the admin
                else:
                    assert isinstance(end, Erasing)
                    assert end.waiting_for()  # an absent decryptor can still end it
        if revealed == 0:
            end = received(at.bare, quiet)
            assert isinstance(end, VoidedByErasure if len(quiet) >= needed else Erasing)


@pytest.mark.parametrize(("members", "colluders"), PLAYED)
def test_reveals_that_came_in_time_give_the_sum_a_repeat_or_an_erasure(members: int, colluders: int) -> None:
    at = stage(members, colluders)
    quorum, phase = at.revealing.attempt.quorum, at.revealing
    for came, reveal in enumerate(at.reveals, 1):
        after = phase.receive(reveal, at.federation.now_s)
        assert isinstance(after, Recovered if came >= quorum.threshold else Revealing)
        if isinstance(after, Recovered):
            break
        assert isinstance(after, Revealing)
        phase = after
        end = phase.pass_deadline(phase.attempt.terms.latest_end_s)
        reachable = members - came >= quorum.erasures_min
        assert isinstance(end, Erasing if reachable else Failed)
        if reachable:
            assert isinstance(received(end, list(at.silent[came:])), VoidedByErasure)


def test_a_false_report_of_a_reveal_costs_no_more_than_a_repeat() -> None:
    """Colluders can claim that they revealed. The certified attempt is then closed, and its records are not lost."""
    at = stage(6, 1)
    liar = erased(at.federation, "member-0", revealed=at.revealing.certificate.outcome)
    end = of(Failed, received(at.certified, [liar, *at.told[1:3]]))
    assert end.link.spends_records
    assert end.link.reason == "none"
