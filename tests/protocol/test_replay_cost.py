"""What a file that somebody made up may cost whoever replays it (protocol §11)."""

from collections.abc import Callable
from typing import Any

import pytest

import veilsum.protocol.replay
from tests.protocol.transcripts import doctored, find, named, verdict
from tests.support.forging import false_dealers, other_secrets
from tests.support.simulator import After, Federation
from veilsum.protocol.causes import Cause
from veilsum.protocol.messages import Evictions, RevealSummary, Survivor
from veilsum.protocol.proposal import disputes_among
from veilsum.protocol.replay import COORDINATOR, follows, replay
from veilsum.protocol.transcript import Transcript


def test_edges_are_looked_at_of_those_who_uploaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of 4.7 MB that names 9,000 members on a complete graph, and no upload, took 50 seconds."""
    federation = Federation(8, drop=dict.fromkeys((6, 7), After.CARD))
    federation.run_round()
    attempt: Any = federation.phase.attempt
    asked: list[str] = []
    neighbours: Callable[..., Any] = type(attempt).neighbours

    def counted(self: Any, member: str) -> Any:
        asked.append(member)
        return neighbours(self, member)

    monkeypatch.setattr(type(attempt), "neighbours", counted)
    uploads = replay(federation.transcript).uploads
    asked.clear()
    assert disputes_among(attempt, uploads, {}) == ()
    assert asked == list(federation.ids[:6])
    assert disputes_among(attempt, {}, {}) == ()
    assert asked == list(federation.ids[:6])


def test_a_refusal_is_judged_without_all_uploads(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 refusals for a cause of nobody's, in a file of 3.7 MB, each looked at 1,900 uploads."""
    federation = Federation(8)
    federation.run_round()
    found = verdict(federation)
    proposal = found.certificate.survivors if found.certificate else ()
    looked: list[str] = []

    class Looked(Survivor):
        @classmethod
        def of(cls, header: Any) -> Survivor:
            looked.append(header.member)
            return Survivor.of(header)

    monkeypatch.setattr(veilsum.protocol.replay, "Survivor", Looked)
    for cause, expected in (("x", None), (Cause.CHAIN_BROKEN, None), (Cause.OWN_UPLOAD_CHANGED, False)):
        said = follows(cause, "member-3", found.attempt, proposal, found.uploads, {})
        assert said is expected
    assert looked == ["member-3"]
    without = {member: upload for member, upload in found.uploads.items() if member != "member-3"}
    assert follows(Cause.OWN_UPLOAD_CHANGED, "member-3", found.attempt, proposal, without, {})


def test_evictions_that_the_coordinator_leaves_out_show_in_what_was_revealed_after_them() -> None:
    """Without them the dealer that proved false stands there as counted."""
    federation = Federation(8)
    false_dealers(federation, {"member-2": other_secrets})
    federation.run_round()
    assert verdict(federation).evicted == ("member-2",)
    found = doctored(federation, lambda entries: entries.pop(find(entries, Evictions)))
    assert named(found) == {((COORDINATOR,), Cause.EVICTION_INVALID)}
    again = [
        index
        for index, message in enumerate(federation.transcript.messages())
        if isinstance(message, RevealSummary) and message.evicted
    ]
    assert [finding.entry for finding in found.findings] == [index - 1 for index in again]
    assert Transcript.from_json(federation.transcript.to_json()).entries == federation.transcript.entries
