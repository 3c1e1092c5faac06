import pytest

from tests.support.simulator import Federation
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.cost import cost_in_words, cost_of, estimate_cost, in_bytes
from veilsum.protocol.errors import Misuse
from veilsum.protocol.messages import Cards, Message, Upload
from veilsum.protocol.sizing import Quorum


def test_the_cost_stated_beforehand_is_the_bytes_that_are_sent() -> None:
    announced: dict[str, int] = {}

    def note(sender: str, message: Message) -> Message:
        if isinstance(message, Upload):
            announced[sender] = len(message.to_bytes())
        return message

    with Federation(members=5, tamper=note, question={"ring_bits": 48}) as federation:
        attempt = federation.run_round().phase.attempt
        for member in federation.ids:
            chunks = sum(len(packed) for (owner, _), packed in federation.spool.items() if owner == member)
            # All but the announcement's framing, and a box more: a decryptor sends itself none.
            foreseen = cost_of(attempt).upload_bytes + 32 * attempt.chunk_count
            assert abs(announced[member] + chunks - foreseen) < 512


def unshown(_sender: str, message: Message) -> Message | None:
    return None if isinstance(message, Cards) else message


@pytest.mark.parametrize(
    ("members", "decryptors", "figures"),
    [
        (5, (), ("5 members", "every other", "All hold shares", "any 4")),
        (9, (0, 2, 4, 6), ("4 nominated (1 may collude)", "any 3")),
        (
            1_000,
            (),
            ("222 others", "any 111", "32 may", "197 drawn", "108 may", "any 153", "626", "100 drop"),
        ),
    ],
)
def test_the_cost_in_words_has_the_sizes_of_the_cohort(
    members: int, decryptors: tuple[int, ...], figures: tuple[str, ...]
) -> None:
    # No member is shown the cards: what it makes of 999 of them is not in question.
    with Federation(members=members, decryptors=decryptors, tamper=unshown) as federation:
        attempt = Attempt(
            federation.roster, federation.study, federation.manifest, federation.opening(federation.terms())
        )
    for figure in figures:
        assert figure in cost_in_words(attempt)
    assert cost_of(attempt).lost == members * attempt.question.loss // 1000


@pytest.mark.parametrize(
    ("size", "shown"), [(12, "12 bytes"), (4_321, "4.3 kB"), (5_700_000, "5.7 MB"), (7_980_000_000, "8.0 GB")]
)
def test_no_size_is_shown_as_zero(size: int, shown: str) -> None:
    assert in_bytes(size) == shown


ELEMENTS = 947_940  # packed V and U at l = 1280, C = 100


@pytest.mark.parametrize(
    ("members", "lost", "ring_bits", "member_ms", "upload_mb", "coordinator_ms"),
    [
        (10, 1, 32, 11, 3.8, 34),
        (10, 1, 48, 16, 5.7, 54),
        (100, 10, 32, 78, 4.4, 780),
        (100, 10, 48, 108, 6.2, 1_229),
    ],
)
def test_measured_rounds_cost_once_to_twice_the_estimate(
    members: int, lost: int, ring_bits: int, member_ms: int, upload_mb: float, coordinator_ms: int
) -> None:
    """As in the README's table: all members decrypt, on the complete graph."""
    cost = estimate_cost(Quorum.derive_quorum(members, members), members - 1, lost, ELEMENTS, ring_bits)
    assert 1 < member_ms / (cost.decryptor_cpu_ns / 1e6) < 2
    assert 1 < coordinator_ms / (cost.coordinator_cpu_ns / 1e6) < 2
    assert cost.upload_bytes / 1e6 == pytest.approx(upload_mb, abs=0.1)
    assert cost.stored_bytes == members * cost.upload_bytes


@pytest.mark.parametrize(
    ("degree", "lost", "elements", "ring_bits"),
    [
        (0, 0, 1, 32),
        (9, 0, 1, 32),
        (8, -1, 1, 32),
        (8, 10, 1, 32),
        (8, 0, 0, 32),
        (8, 0, 1, 7),
        (8, 0, 1, 65),
    ],
)
def test_impossible_rounds_are_a_misuse(degree: int, lost: int, elements: int, ring_bits: int) -> None:
    with pytest.raises(Misuse):
        estimate_cost(Quorum.derive_quorum(9, 9), degree, lost, elements, ring_bits)
