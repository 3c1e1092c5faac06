"""What the coordinator shows of an indicator round, and of no other (protocol §8.2)."""

import gc
import weakref

import pytest

from tests.protocol.questions import GRADIENTS
from tests.support.forging import false_dealers, other_secrets
from tests.support.simulator import After, Federation
from veilsum.protocol.coordinator import Recovered, Revealing, disclose
from veilsum.protocol.errors import Misuse


def recovered(federation: Federation) -> Recovered:
    phase = federation.run_round().phase
    assert isinstance(phase, Recovered)
    return phase


@pytest.mark.parametrize("question", [{}, GRADIENTS], ids=["exact", "noisy"])
def test_no_other_round_is_disclosed(question: dict[str, object]) -> None:
    phase = recovered(Federation(4, question=question))

    def never(_member: str, _index: int) -> bytes:
        raise AssertionError

    with pytest.raises(Misuse, match="only an indicator is disclosed"):
        disclose(phase, never)


@pytest.mark.parametrize("margin", [None, 0])
def test_announcements_are_kept_for_a_disclosure_alone(margin: int | None) -> None:
    federation = Federation(4, margin=margin)
    federation.begin()
    shelf = weakref.ref(federation.run_until(Revealing).setting.shelf)
    phase = federation.run_until(Recovered)
    assert isinstance(phase, Recovered)
    gc.collect()
    assert (shelf() is None) is (margin is None)
    assert set(phase.uploads) == set(phase.summed)


@pytest.mark.parametrize("evicted", [False, True])
def test_every_survivor_is_shown_with_its_chunks_and_every_seed_due(*, evicted: bool) -> None:
    federation = Federation(6, margin=1, drop={} if evicted else {1: After.OPENING})
    false_dealers(federation, {"member-1": other_secrets} if evicted else {})
    phase = recovered(federation)
    shown = disclose(phase, lambda member, index: federation.spool[member, index])
    assert shown.context == phase.attempt.context
    assert tuple(entry.member for entry in shown.entries) == phase.summed
    assert "member-1" not in phase.summed
    assert (phase.evictions is not None) is evicted
    for entry in shown.entries:
        assert entry.header == phase.uploads[entry.member].header
        assert entry.chunks == (federation.spool[entry.member, 0],)
        index = phase.attempt.secret_index(entry.member, "member-1")
        assert [seed.index for seed in entry.seeds] == [0, index]
        assert entry.seeds[0].seed == phase.self_seeds[entry.member]
        assert entry.seeds[1].seed == phase.edge_seeds[entry.member, "member-1"]
