"""A member checks the round's transcript against what it saw and signed."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from client_sdk.errors import PeerFault
from client_sdk.evidence import replay_with_evidence
from client_sdk.identity import Identity
from client_sdk.result import TRANSCRIPT_FILE, Result
from tests.support.consortium import Consortium
from tests.support.forging import again
from tests.support.refusals import refused
from tests.support.serving import Stage
from veilsum.protocol.causes import Cause
from veilsum.protocol.messages import Certificate, Survivor, VoidRequest, Vote, parse_message
from veilsum.protocol.record import DisputeView, sign_record
from veilsum.protocol.transcript import Transcript

Edit = Callable[[list[bytes]], object]


def transcript_of(result: Result) -> Transcript:
    assert result.transcript_file is not None
    return Transcript.from_json(result.transcript_file.decode())


def doctored(consortium: Consortium, result: Result, edit: Edit) -> Result:
    """Have a coordinator change and sign the transcript, and sign a record that names it."""
    entries = list(transcript_of(result).entries)
    edit(entries)
    made = Transcript(tuple(entries)).sign(consortium.coordinator_key, result.evidence.attempt.context)
    record = sign_record(
        result.record.model_copy(update={"transcript": made.head.hex()}), consortium.coordinator_key
    )
    return replace(result, transcript_file=made.to_json().encode(), record=record)


def cause_of(result: Result) -> tuple[Cause, tuple[str, ...]]:
    with pytest.raises(PeerFault) as caught:
        result.verify()
    return caught.value.cause, caught.value.parties


def test_a_result_comes_with_the_transcript_and_the_members_own_header(
    done: tuple[Consortium, Result], tmp_path: Path
) -> None:
    consortium, result = done
    assert result.verdict is not None
    assert result.verdict.is_faultless
    assert [result.verdict.counts_upload(member) for member in consortium.ids] == [True] * 3
    result.save(tmp_path)
    assert Result.load(tmp_path).transcript_file == result.transcript_file
    decryptor = replace(result.evidence, own=(), headers=())
    replace(result, evidence=decryptor, transcript_file=None).save(tmp_path)  # where another one was
    loaded = Result.load(tmp_path)
    assert (loaded.transcript_file, loaded.evidence.header) == (None, None)
    result.save(tmp_path)
    header = Result.load(tmp_path).evidence.header
    assert header is not None
    assert (Survivor.from_header(header),) == result.evidence.own
    assert Survivor.from_header(header) in result.certificate.survivors


def test_a_transcript_that_the_record_does_not_name_is_refused(done: tuple[Consortium, Result]) -> None:
    consortium, result = done
    other = transcript_of(result)
    cut = Transcript(other.entries[:-1]).sign(consortium.coordinator_key, result.evidence.attempt.context)
    changed = replace(result, transcript_file=cut.to_json().encode())
    assert cause_of(changed) == (Cause.RESULT_MISMATCH, ("coordinator",))
    assert cause_of(replace(result, transcript_file=b"{}"))[0] is Cause.MALFORMED


def test_one_that_the_coordinator_did_not_sign_is_refused(done: tuple[Consortium, Result]) -> None:
    consortium, result = done
    unsigned = transcript_of(result).sign(consortium.admin, result.evidence.attempt.context)
    changed = replace(result, transcript_file=unsigned.to_json().encode())
    assert cause_of(changed) == (Cause.BAD_SIGNATURE, ("coordinator",))


def test_a_member_that_broke_a_rule_is_told_of_beside_the_result(done: tuple[Consortium, Result]) -> None:
    consortium, result = done
    entries = transcript_of(result).entries
    at, vote = next((i, v) for i, e in enumerate(entries) if isinstance(v := parse_message(e), Vote))
    key = Identity.load(consortium.folder / vote.member).key
    other = again(vote, key, outcome=bytes(32)).to_bytes()
    told = doctored(consortium, result, lambda made: made.insert(at + 1, other))
    told.verify()
    assert told.verdict is not None
    [finding] = told.verdict.findings
    assert (finding.parties, finding.cause) == ((vote.member,), Cause.ALREADY_VOTED)


def test_one_of_another_attempt_is_refused(
    stage: Stage, done: tuple[Consortium, Result], tmp_path: Path
) -> None:
    _, result = done
    other = Consortium(stage, tmp_path)
    other.transcripts = True
    round_id = other.open_round(other.enrol("p2"))
    second = other.together(other.contributions(round_id))["member-0"]
    with refused(Cause.RESULT_MISMATCH, "coordinator"):
        replay_with_evidence(
            second.transcript_file, replace(result.evidence, roster=second.evidence.roster), second.record
        )


def test_another_outcome_than_the_member_was_shown_is_refused(
    done: tuple[Consortium, Result], voided: Result
) -> None:
    consortium, result = done
    assert result.transcript_file is not None
    at = [type(parse_message(entry)) for entry in transcript_of(result).entries].index(Certificate)
    cut = doctored(consortium, result, lambda entries: entries.__delitem__(slice(at, None)))
    assert cause_of(cut) == (Cause.RESULT_MISMATCH, ("coordinator",))
    with refused("result-mismatch", "coordinator"):
        replay_with_evidence(result.transcript_file, voided.evidence, result.record)
    disputed = DisputeView(cause="box-refused", parties=("member-1", "member-2"))
    for change in ({"evicted": ("member-1",)}, {"disputes": (disputed,), "dropped": ("member-1",)}):
        with refused("result-mismatch", "coordinator"):
            replay_with_evidence(
                result.transcript_file, result.evidence, result.record.model_copy(update=change)
            )


def test_another_upload_of_its_own_is_refused(done: tuple[Consortium, Result]) -> None:
    _, result = done
    assert result.transcript_file is not None
    evidence = replace(result.evidence, own=(Survivor("member-0", bytes(32)),))
    with refused(Cause.OWN_UPLOAD_CHANGED, "coordinator"):
        replay_with_evidence(result.transcript_file, evidence, result.record)
    decryptor = replace(result.evidence, own=(), headers=())
    assert replay_with_evidence(result.transcript_file, decryptor, result.record).is_faultless


def test_it_is_fetched_where_it_is_asked_for(consortium: Consortium) -> None:
    round_id = consortium.open_round(consortium.enrol())
    flows = consortium.contributions(round_id)
    flows["member-1"].close()
    flows["member-1"] = consortium.member("member-1", transcripts=True).contribute(round_id)
    results = consortium.together(flows)
    assert [results[member].verdict is not None for member in consortium.ids] == [False, True, False]
    assert len(consortium.requests("/transcript")) == 1
    loaded = Result.load(consortium.member("member-0").session.store.result_folder(round_id))
    loaded.verify(consortium.admin.public)
    assert (loaded.verdict, loaded.counted) == (None, True)


def test_what_shows_that_the_coordinator_is_false_is_kept(consortium: Consortium) -> None:
    """Here, a request to void the attempt after its certificate."""
    consortium.transcripts = True
    round_id = consortium.open_round(consortium.enrol())
    consortium.together(consortium.contributions(round_id), vanish={"member-0": "/result"})
    true = Transcript.from_json(consortium.operator.transcript(round_id).decode())
    context = consortium.round(round_id).attempt.context
    entries = (*true.entries, VoidRequest(context, "cancelled").to_bytes())
    false = Transcript(entries).sign(consortium.coordinator_key, context)
    consortium.misstate(transcript=false.head.hex())
    consortium.shows("GET .*/transcript", lambda _: httpx.Response(200, content=false.to_json()))
    failed = consortium.together(consortium.contributions(round_id, ["member-0"]))["member-0"]
    assert isinstance(failed, PeerFault)
    assert (failed.cause, failed.parties) == (Cause.WRONG_PHASE, ("coordinator",))
    folder = consortium.member("member-0").session.store.result_folder(round_id)
    assert not Result.saved_in(folder)
    assert Transcript.from_json((folder / TRANSCRIPT_FILE).read_text()).signature
