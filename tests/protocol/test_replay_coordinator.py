"""An auditor blames a coordinator for what it admits into a transcript, omits or invents (analysis: Transcripts)."""

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
    Receipt,
    Refusal,
    Survivor,
    SurvivorSet,
    Upload,
    UploadSummary,
    Vote,
    parse_message,
    survivors_hash,
)
from veilsum.protocol.replay import replay_transcript
from veilsum.protocol.transcript import Transcript

ERASED: dict[str, Any] = {"drop": {0: After.RECEIPT, 1: After.RECEIPT}}
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
    federation = Federation(5 if proposed else 4)
    if not proposed:
        federation.tamper = false_edge(federation, "member-2")
    assert isinstance(federation.run_round().phase, Recovered if proposed else Voided)

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


def voided() -> Federation:
    federation = Federation(5)
    federation.tamper = lambda _sender, message: None if isinstance(message, Upload) else message
    federation.run_round()
    assert isinstance(federation.phase, Voided)
    return federation


def test_a_void_where_survivors_were_asked_for_names_the_coordinator() -> None:
    federation = voided()
    assert isinstance(federation.phase.request_for("member-0"), Certificate)
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


def test_a_report_that_its_decryptor_did_not_sign_names_the_coordinator() -> None:
    federation = played(**ERASED)

    def edit(entries: Entries) -> None:
        at = find(entries, Erased, "member-2")
        report = of(Erased, parse_message(entries[at]))
        entries[at] = again(report, federation.coordinator).to_bytes()

    assert named(doctored(federation, edit)) == {
        (COORDINATOR, "bad-signature"),
        (COORDINATOR, "erasure-invalid"),
    }


def test_a_refusal_that_its_decryptor_did_not_sign_names_the_coordinator() -> None:
    federation = Federation(5)
    federation.tamper = lambda sender, message: (
        replace(message, headers=message.headers[2:])
        if isinstance(message, Freeze) and sender == "coordinator>member-0"
        else message
    )
    federation.run_round()

    def edit(entries: Entries) -> None:
        at = find(entries, Refusal, "member-0")
        refusal = of(Refusal, parse_message(entries[at]))
        entries[at] = again(refusal, federation.coordinator, cause="count-mismatch").to_bytes()

    found = doctored(federation, edit)
    assert named(found) == {(COORDINATOR, "bad-signature")}
    assert found.refusals == ()


def test_evictions_of_another_context_name_the_coordinator() -> None:
    federation = Federation(5)
    false_dealers(federation, {"member-3": lambda attempt: other_secrets(attempt, 0)})
    federation.run_round()
    assert (COORDINATOR, "wrong-context") in named(doctored(federation, change(Evictions, context=bytes(32))))


def test_an_erasure_that_is_not_valid_names_the_coordinator() -> None:
    federation = played(**ERASED)
    closed = of(Erasure, parse_message(federation.transcript.entries[-1]))

    def edit(entries: Entries) -> None:
        entries[-1] = replace(closed, reports=closed.reports[1:]).to_bytes()

    found = doctored(federation, edit)
    assert (COORDINATOR, "erasure-invalid") in named(found)
    assert found.closing is None
    # and nothing follows it
    late = erased(federation, "member-0").to_bytes()
    assert named(doctored(federation, lambda e: e.append(late))) == {(COORDINATOR, "wrong-phase")}


def test_a_report_that_stands_in_the_erasure_alone_was_not_noted() -> None:
    federation = played(**ERASED)
    found = doctored(federation, lambda entries: entries.pop(find(entries, Erased, "member-2")))
    assert named(found) == {(COORDINATOR, "erasure-invalid")}
    assert "member-2" in found.findings[0].detail


def test_a_lost_that_is_not_valid_names_the_coordinator() -> None:
    federation = played(**LOST)
    closed = lost(federation)

    def edit(entries: Entries) -> None:
        entries[-1] = again(closed, federation.coordinator).to_bytes()

    assert (COORDINATOR, "bad-signature") in named(doctored(federation, edit))
    # and nothing follows it
    assert named(doctored(federation, lambda e: e.append(closed.to_bytes()))) == {(COORDINATOR, "duplicate")}
