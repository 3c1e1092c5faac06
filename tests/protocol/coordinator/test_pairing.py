import pytest

from tests.support.forging import swallowing
from tests.support.pairing import let_pair, pairing_of
from tests.support.refusals import refused
from tests.support.simulator import Federation
from veilsum.protocol.coordinator import PairingWindow
from veilsum.protocol.messages import Message, Pairing
from veilsum.protocol.pairing import MAX_MANIFESTS


@pytest.fixture
def federation() -> Federation:
    """Six members with cards for cohort 1."""
    return Federation(6)


@pytest.fixture
def window(federation: Federation) -> PairingWindow:
    """The window of their first manifest, under which all have paired; none of the pairings has come."""
    enrolling = federation.collect_cards("other-1")
    let_pair(federation, enrolling)
    return PairingWindow.begin(enrolling)


def receive(federation: Federation, window: PairingWindow, *members: str) -> PairingWindow:
    for member in members:
        window = window.receive(pairing_of(federation, member))
    return window


def test_a_window_is_complete_once_every_member_has_paired(
    federation: Federation, window: PairingWindow
) -> None:
    most = receive(federation, window, *federation.ids[:5])
    assert most.missing_members == ("member-5",)
    assert not most.is_complete
    whole = receive(federation, most, "member-5")
    assert (whole.missing_members, whole.is_complete) == ((), True)
    assert receive(federation, whole, "member-0") is whole
    assert whole.signatures == {m: pairing_of(federation, m).signature for m in federation.ids}


def test_a_pairing_that_came_before_a_restart_counts(federation: Federation, window: PairingWindow) -> None:
    one = receive(federation, window, "member-0", "member-1")
    assert window.with_signatures(one.signatures) == one


def test_the_next_manifest_is_of_the_others_over_the_same_cards(
    federation: Federation, window: PairingWindow
) -> None:
    following = receive(federation, window, *federation.ids[1:]).leave_out_missing()
    assert following.number == 2
    assert following.signatures == {}
    assert following.manifest.members == following.manifest.decryptors == federation.ids[1:]
    assert following.manifest.cohort == window.manifest.cohort
    assert following.manifest.hash != window.manifest.hash
    assert following.enrolling.cards == {m: window.enrolling.cards[m] for m in federation.ids[1:]}
    assert following.enrolling.mlkem_keys.items() >= {
        (m, window.enrolling.mlkem_keys[m]) for m in federation.ids[1:]
    }


def test_with_too_few_left_the_cohort_fails_and_names_who_is_missing(
    federation: Federation, window: PairingWindow
) -> None:
    with refused("cohort-too-small", *federation.ids[2:]):
        receive(federation, window, "member-0", "member-1").leave_out_missing()


def test_a_repeated_run_fails_with_the_first_member_that_does_not_pair(federation: Federation) -> None:
    context = federation.run_round().phase.attempt.context
    federation.tamper = swallowing(Pairing, "member-3")
    with refused("cohort-too-small", "member-3"):
        federation.enrol("period-0", context)


# Whole cohorts


@pytest.mark.parametrize("quiet", [1, 2, 3])
def test_members_that_stop_to_pair_one_after_another_cost_a_window_each(quiet: int) -> None:
    federation = Federation(8)
    begun_s, window_s = federation.now_s, federation.content.question.windows.answer

    def tamper(sender: str, message: Message) -> Message | None:
        gone = federation.ids[: min(quiet, 1 + int(federation.now_s - begun_s) // window_s)]
        return None if isinstance(message, Pairing) and sender in gone else message

    federation.tamper = tamper
    if quiet < MAX_MANIFESTS:
        federation.enrol("other-1")
        assert federation.run_round().survivors == federation.ids[quiet:]
    else:
        with refused("cohort-too-small", "member-2"):
            federation.enrol("other-1")
    assert federation.now_s - begun_s == quiet * window_s
