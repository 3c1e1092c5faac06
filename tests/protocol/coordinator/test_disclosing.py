"""What the coordinator shows of an indicator round, and of no other (protocol §9)."""

import gc
import weakref

import pytest

from protocol.coordinator import Recovered, Revealing, disclose
from protocol.errors import Misuse
from protocol.simulator import After, Federation
from tests.protocol.forging import false_dealers, other_secrets


def recovered(federation: Federation, **terms: str | bytes | int) -> Recovered:
    outcome = federation.run_round(terms=federation.terms(20, chunk_elements=8, **terms))
    assert isinstance(outcome.phase, Recovered)
    return outcome.phase


@pytest.mark.parametrize("terms", [{}, {"noise": b"some"}], ids=["exact", "noisy"])
def test_no_other_round_is_disclosed(terms: dict[str, bytes]) -> None:
    federation = Federation(4)
    phase = recovered(federation, **terms)

    def never(_member: str, _index: int) -> bytes:
        raise AssertionError

    with pytest.raises(Misuse, match="only an indicator round is disclosed"):
        disclose(phase, never)


@pytest.mark.parametrize(("statistic", "kept"), [("ffc", False), ("indicator", True)])
def test_announcements_are_kept_for_a_disclosure_alone(*, statistic: str, kept: bool) -> None:
    federation = Federation(4)
    federation.begin(terms=federation.terms(20, chunk_elements=8, statistic=statistic))
    shelf = weakref.ref(federation.run_until(Revealing).setting.shelf)
    phase = federation.run_until(Recovered)
    assert isinstance(phase, Recovered)
    gc.collect()
    assert (shelf() is not None) is kept
    assert set(phase.uploads) == set(phase.summed)


def test_every_survivor_is_shown_with_its_chunks_and_every_seed_due() -> None:
    federation = Federation(6, drop={1: After.OPENING})
    phase = recovered(federation, statistic="indicator")
    shown = disclose(phase, lambda member, index: federation.spool[member, index])
    assert shown.context == phase.attempt.context
    assert phase.evictions is None
    assert tuple(entry.member for entry in shown.entries) == phase.summed
    for entry in shown.entries:
        assert entry.header == phase.uploads[entry.member].header
        assert entry.chunks == tuple(federation.spool[entry.member, index] for index in range(3))
        index = phase.attempt.secret_index(entry.member, "member-1")
        assert [seed.index for seed in entry.seeds] == [0, index]
        assert entry.seeds[0].seed == phase.self_seeds[entry.member]
        assert entry.seeds[1].seed == phase.edge_seeds[entry.member, "member-1"]


def test_who_was_evicted_is_left_out_and_counts_as_lost() -> None:
    federation = Federation(6)
    false_dealers(federation, {"member-3": other_secrets})
    phase = recovered(federation, statistic="indicator")
    shown = disclose(phase, lambda member, index: federation.spool[member, index])
    assert tuple(entry.member for entry in shown.entries) == phase.summed
    assert "member-3" not in phase.summed
    assert phase.evictions is not None
    assert phase.evictions.evicted == ("member-3",)
    assert all(len(entry.seeds) == 2 for entry in shown.entries)
