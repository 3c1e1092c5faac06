"""Uploads: what is stored before a chunk leaves, and how far they are."""

from pathlib import Path

from client_sdk.progress import Step
from tests.support.consortium import WITHHOLDING, Consortium
from tests.support.serving import Stage


def test_an_upload_counts_its_records_before_it_leaves(stage: Stage, tmp_path: Path) -> None:
    """Otherwise a member that gives up a lost count would let its records be counted once more."""
    consortium = Consortium(stage, tmp_path, question=WITHHOLDING)
    round_id = consortium.open_round(consortium.enrol())
    member = consortium.member("member-0")
    assert [run.counted for run in member.ledger()] == [False]
    steps = consortium.until(member.contribute(round_id), "uploads/member-0", "before")
    assert [run.counted for run in member.ledger()] == [True]
    steps.close()


def test_an_upload_reports_each_chunk_that_is_masked_and_sent(consortium: Consortium) -> None:
    round_id = consortium.open_round(consortium.enrol())
    consortium.run_until(consortium.member("member-0").contribute(round_id), "chunks/1")
    chunks = consortium.round(round_id).attempt.chunk_count
    events = [event for _, event in consortium.events if event.step in {Step.MASKING, Step.UPLOADING}]
    masked, sent = ([each for each in events if each.step is step] for step in (Step.MASKING, Step.UPLOADING))
    assert [(each.done, each.total) for each in masked] == [(done, chunks) for done in range(1, chunks + 1)]
    assert [(each.done, each.total) for each in sent] == [(done, chunks) for done in range(1, chunks)]
