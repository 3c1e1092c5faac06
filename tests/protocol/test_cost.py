import hashlib
from collections import Counter

import pytest

from tests.support.simulator import Federation, simulated_content, simulated_question, simulated_roster
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.coordinator import Enrolling
from veilsum.protocol.cost import (
    ADD_ELEMENT_PS,
    DIGEST_PS,
    MASK_PS,
    cost_in_words,
    cost_of,
    estimate_cost,
    in_bytes,
)
from veilsum.protocol.errors import Misuse
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import (
    NO_CONTEXT,
    Enrolment,
    KeyCard,
    Message,
    Opening,
    Pairing,
    Study,
    Terms,
    Upload,
)
from veilsum.protocol.messages.cohort import MLKEM_KEY_BYTES
from veilsum.protocol.sizing import Quorum
from veilsum.protocol.study import DAY_S, SUM_STEP

NOW_S = 1_800_000_000


def test_the_cost_stated_beforehand_is_the_bytes_that_are_sent() -> None:
    announced: dict[str, int] = {}
    before: Counter[str] = Counter()

    def note(sender: str, message: Message) -> Message:
        if isinstance(message, Upload):
            announced[sender] = len(message.to_bytes())
        if isinstance(message, Enrolment | Pairing):
            before[sender] += len(message.to_bytes())
        return message

    with Federation(members=5, tamper=note, question={"ring_bits": 48}) as federation:
        attempt = federation.run_round().phase.attempt
        for member in federation.ids:
            chunks = sum(len(packed) for (owner, _), packed in federation.spool.items() if owner == member)
            # All but the announcement's framing, and a box more: a decryptor sends itself none.
            foreseen = cost_of(attempt).upload_bytes + 32 * attempt.chunk_count
            assert abs(announced[member] + chunks - foreseen) < 512
            assert abs(before[member] - cost_of(attempt).pairing_bytes) < 512


def attempt_of(members: int, decryptors: tuple[int, ...]) -> Attempt:
    """Make an attempt of members that have enrolled, and not paired: what they do is not in question."""
    admin = SigningKey(bytes(32))
    ids = [f"member-{place:03}" for place in range(members)]
    keys = {member: hashlib.sha256(member.encode()).digest() for member in ids}
    roster = simulated_roster(admin, admin.public, keys, decryptors=tuple(ids[place] for place in decryptors))
    content = simulated_content(simulated_question(members), NOW_S + 80 * DAY_S)
    study = Study.make_signed(admin, federation=admin.public, content=content.to_bytes())
    enrolling = Enrolling(roster, study, 0, "period-0")
    enrolments = (
        Enrolment(
            KeyCard.make_signed(
                admin,
                cohort=enrolling.cohort,
                member=member,
                x25519_key=key,
                mlkem_key_hash=key,
                nonce=bytes(32),
                expires_s=NOW_S,
                serial=1,
            ),
            bytes(MLKEM_KEY_BYTES),
        )
        for member, key in keys.items()
    )
    manifest = enrolling.with_enrolments(enrolments).make_manifest()
    terms = Terms(SUM_STEP, NO_CONTEXT, NO_CONTEXT, (), (), NO_CONTEXT, NOW_S + DAY_S)
    opening = Opening.make_signed(admin, cohort=manifest.cohort, sequence=0, attempt=0, links=(), terms=terms)
    return Attempt(roster, study, manifest, opening)


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
    attempt = attempt_of(members, decryptors)
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


def test_each_further_byte_of_a_vector_is_masked_added_and_hashed() -> None:
    """One of ten members drops out: the coordinator removes nine own masks, and nine that are shared with the dropout."""
    quorum, more_bytes = Quorum.derive_quorum(10, 10), 4 * 10**6
    short, long = (estimate_cost(quorum, 9, 1, elements, 32) for elements in (10**6, 2 * 10**6))
    member_ps = 10 * MASK_PS + DIGEST_PS
    assert 1000 * (long.member_cpu_ns - short.member_cpu_ns) == more_bytes * member_ps
    coordinator_ps = 18 * MASK_PS + 9 * (ADD_ELEMENT_PS + DIGEST_PS)
    assert 1000 * (long.coordinator_cpu_ns - short.coordinator_cpu_ns) == more_bytes * coordinator_ps


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
