"""An auditor blames a coordinator for what it admits into a transcript, omits or invents (analysis: Transcripts)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.protocol.transcripts import (
    COORDINATOR,
    Entries,
    change,
    doctored,
    false_edge,
    find,
    named,
    played,
    showing_too_few,
    verdict,
)
from tests.support.forging import again, erased, false_dealers, lost, other_secrets
from tests.support.refusals import refused
from tests.support.simulator import After, Federation, of
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Recovered, Voided
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import (
    Certificate,
    Erased,
    Erasure,
    Evictions,
    Freeze,
    Lost,
    Receipt,
    Refusal,
    Survivor,
    SurvivorSet,
    UploadSummary,
    VoidRequest,
    Vote,
    parse_message,
    survivors_hash,
)
from veilsum.protocol.replay import replay_transcript
from veilsum.protocol.transcript import Transcript

ERASED: dict[str, Any] = {"drop": {0: After.RECEIPT, 1: After.RECEIPT}}
Edit = Callable[[Federation, Entries], object]
LOST: dict[str, Any] = {"drop": {0: After.RECEIPT, 1: After.RECEIPT, 2: After.RECEIPT}}


def test_nothing_is_replayed_without_a_beginning() -> None:
    federation = played(4)
    entries = federation.transcript.entries
    for broken in ((), entries[:3], (*entries[:2], entries[3], entries[2]), (b"",) * 4):
        with pytest.raises(PeerFault) as caught:
            replay_transcript(Transcript(broken))
        assert caught.value.parties == COORDINATOR
        assert caught.value.cause in {Cause.MALFORMED, Cause.TRUNCATED}


def test_swapped_reveals_tell_nothing_else() -> None:
    """The coordinator decides the order of answers if nothing follows from it."""
    federation = played(5)

    def edit(entries: Entries) -> None:
        entries[-1], entries[-2] = entries[-2], entries[-1]

    assert doctored(federation, edit).findings == ()


def test_the_roster_may_speak_for_itself() -> None:
    federation = played(4)
    assert replay_transcript(federation.transcript).is_faultless
    with refused("wrong-federation", "coordinator"):
        replay_transcript(federation.transcript, federation.coordinator.public)


@pytest.mark.parametrize("proposed", [True, False])
def test_receipts_that_cover_different_uploads_name_the_coordinator(*, proposed: bool) -> None:
    federation = played(5) if proposed else with_false_edge()
    assert isinstance(federation.phase, Recovered if proposed else Voided)

    def edit(entries: Entries) -> None:
        at = find(entries, Receipt, "member-1")
        receipt = of(Receipt, parse_message(entries[at]))
        entries[at] = again(receipt, federation.keys["member-1"], dealers=receipt.dealers[1:]).to_bytes()

    assert named(doctored(federation, edit)) == {(COORDINATOR, "survivors-invalid")}


# What an attempt rests on


def resting(*, repeats: bool) -> Federation:
    """Return a federation before a sum under a count, or before a repeated sum."""
    federation = Federation(6, margin=None if repeats else 1)
    if repeats:
        context = federation.run_round().phase.attempt.context
        federation.tell_ending()
        federation.enrol("period-0", context)
    else:
        federation.run_round(dict.fromkeys(federation.ids, np.ones(4, np.int64)))
        federation.disclose()
    return federation


def certifying(federation: Federation, survivors: slice, earlier: tuple[SurvivorSet, ...]) -> Any:
    """Certify this part of the uploads, with the earlier set shown, as a coordinator whose decryptors all collude."""

    def edit(entries: Entries) -> None:
        del entries[find(entries, Freeze) :]
        messages = [parse_message(entry) for entry in entries]
        headers = tuple(m.header for m in messages if isinstance(m, UploadSummary))[survivors]
        named_, context = tuple(map(Survivor.from_header, headers)), headers[0].context
        outcome = survivors_hash(context, named_)
        votes = tuple(
            Vote.make_signed(federation.keys[m], context=context, member=m, outcome=outcome)
            for m in federation.ids[:5]
        )
        said = (Freeze(context, headers, earlier), *votes, Certificate(context, named_, "none", votes))
        entries.extend(message.to_bytes() for message in said)

    return edit


@pytest.mark.parametrize("repeats", [False, True])
def test_the_set_that_an_attempt_rests_on_is_checked_against_the_links(*, repeats: bool) -> None:
    federation = resting(repeats=repeats)
    true = SurvivorSet(federation.sets[federation.links[0].context])
    outcome = federation.run_round()
    assert isinstance(outcome.phase, Recovered)
    found = verdict(federation)
    assert (found.findings, found.is_faultless, found.survivors) == ((), True, tuple(federation.ids))
    assert doctored(federation, certifying(federation, slice(None), (true,))).findings == ()
    forged = replace(true, survivors=true.survivors[:5])
    for survivors, earlier in (
        (slice(None), ()),
        (slice(None), (forged,)),
        (slice(5), (forged,)),
        (slice(5) if repeats else slice(4), (true,)),
    ):
        found = doctored(federation, certifying(federation, survivors, earlier))
        assert {finding.parties for finding in found.findings} == {COORDINATOR}
        assert {finding.cause for finding in found.findings} <= {
            Cause.MALFORMED,
            Cause.REPEAT_MISMATCH,
            Cause.COUNT_MISMATCH,
            Cause.SURVIVORS_INVALID,
            Cause.SURVIVORS_TOO_FEW,
            Cause.OUTCOME_MISSING,
        }


def test_a_set_that_is_shown_for_no_reason_is_found() -> None:
    federation = played(5)
    shown = (SurvivorSet(federation.sets[federation.phase.attempt.context]),)
    found = doctored(federation, certifying(federation, slice(None), shown))
    assert named(found) == {(COORDINATOR, "malformed")}


def test_a_void_where_survivors_were_asked_for_names_the_coordinator() -> None:
    other = Federation(5)
    other.run_round()
    attempt = other.phase.attempt
    unvoted = Certificate(attempt.context, (), "cancelled", ())
    votes = tuple(
        Vote.make_signed(other.keys[m], context=attempt.context, member=m, outcome=unvoted.outcome)
        for m in other.ids
    )

    def edit(entries: Entries) -> None:
        del entries[find(entries, Vote) :]
        entries.extend(vote.to_bytes() for vote in votes)
        entries.append(replace(unvoted, votes=votes).to_bytes())

    assert (COORDINATOR, "certificate-invalid") in named(doctored(other, edit))


def with_false_dealer() -> Federation:
    federation = Federation(5)
    false_dealers(federation, {"member-3": lambda attempt: other_secrets(attempt, 0)})
    federation.run_round()
    return federation


def with_false_edge() -> Federation:
    federation = Federation(4)
    federation.tamper = false_edge(federation, "member-2")
    federation.run_round()
    return federation


def signed_by_coordinator(form: type[Any], member: str = "", **changes: Any) -> Edit:
    def edit(federation: Federation, entries: Entries) -> None:
        at = find(entries, form, member)
        entries[at] = again(
            of(form, parse_message(entries[at])), federation.coordinator, **changes
        ).to_bytes()

    return edit


def drop_report(_: Federation, entries: Entries) -> None:
    closed = of(Erasure, parse_message(entries[-1]))
    entries[-1] = replace(closed, reports=closed.reports[1:]).to_bytes()


@pytest.mark.parametrize(
    ("play", "edit", "causes"),
    [
        (
            lambda: played(**ERASED),
            signed_by_coordinator(Erased, "member-2"),
            {"bad-signature", "erasure-invalid"},
        ),
        (
            lambda: played(5, tamper=showing_too_few("member-0")),
            signed_by_coordinator(Refusal, "member-0", cause="count-mismatch"),
            {"bad-signature"},
        ),
        (
            with_false_dealer,
            lambda _, entries: change(Evictions, context=bytes(32))(entries),
            {"wrong-context"},
        ),
        (
            with_false_edge,
            lambda _, entries: change(VoidRequest, context=bytes(32))(entries),
            {"wrong-context"},
        ),
        (lambda: played(**ERASED), drop_report, {"erasure-invalid"}),
        (lambda: played(**LOST), signed_by_coordinator(Lost), {"bad-signature"}),
    ],
    ids=["report", "refusal", "evictions", "void", "erasure", "lost"],
)
def test_what_its_sender_did_not_sign_or_does_not_hold_names_the_coordinator(
    play: Callable[[], Federation], edit: Edit, causes: set[str]
) -> None:
    federation = play()
    found = doctored(federation, lambda entries: edit(federation, entries))
    assert {(COORDINATOR, cause) for cause in causes} <= named(found)
    assert found.refusals == ()


def test_nothing_follows_the_end_of_an_attempt() -> None:
    federation = played(**ERASED)
    late = erased(federation, "member-0").to_bytes()
    assert named(doctored(federation, lambda e: e.append(late))) == {(COORDINATOR, "wrong-phase")}
    federation = played(**LOST)
    closed = lost(federation).to_bytes()
    assert named(doctored(federation, lambda e: e.append(closed))) == {(COORDINATOR, "duplicate")}


def test_a_report_that_stands_in_the_erasure_alone_was_not_noted() -> None:
    federation = played(**ERASED)
    found = doctored(federation, lambda entries: entries.pop(find(entries, Erased, "member-2")))
    assert named(found) == {(COORDINATOR, "erasure-invalid")}
    assert "member-2" in found.findings[0].detail
