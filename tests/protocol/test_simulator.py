import numpy as np

from tests.support.simulator import After, Federation, SeededRandom
from veilsum.protocol.coordinator import Recovered
from veilsum.protocol.messages import KeyCard, Message


def test_a_seed_replays_a_round_to_the_byte() -> None:
    runs = []
    for seed in (1, 1, 2):
        federation = Federation(3, seed=seed)
        federation.run_round()
        runs.append((federation.manifest.to_bytes(), dict(federation.spool)))
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_seeded_bytes_continue() -> None:
    one, two = SeededRandom(5), SeededRandom(5)
    assert one(3) + one(5) == two(8)
    assert SeededRandom(5)(8) != SeededRandom(6)(8)


def test_it_is_a_context_manager_that_forgets() -> None:
    with Federation(members=10, drop={3: After.UPLOAD}) as federation:
        assert isinstance(federation.run_round().phase, Recovered)
    assert federation.phases == {}


def test_a_member_whose_card_is_lost_is_not_in_the_cohort() -> None:
    federation = Federation(5)

    def lose(sender: str, message: Message) -> Message | None:
        return None if sender == "member-4" and isinstance(message, KeyCard) else message

    federation.tamper = lose
    federation.enrol("other-1")
    assert federation.manifest.members == federation.ids[:4]
    outcome = federation.run_round()
    assert outcome.survivors == federation.ids[:4]


def test_vectors_are_made_as_they_are_asked_for() -> None:
    federation = Federation(4)
    outcome = federation.run_round(lambda member: np.full(99, federation.ids.index(member)))
    assert outcome.total is not None
    assert outcome.total.tolist() == [6] * 99
