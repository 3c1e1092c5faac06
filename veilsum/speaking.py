"""A client's and a helper's part in rounds with mask helpers, from the command line."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibration import FeaturesLattice
from client_sdk import ClientResult, Helper, Identity, Member, Policy, Records, Result, Wanted
from client_sdk.store import Store
from protocol.causes import Cause
from protocol.errors import Misuse, PeerFault
from protocol.helpers.helper import HelperPhase, Voted
from protocol.helpers.helper.attempting import Attempting
from protocol.messages.outcome import NO_REASON
from protocol.rest import TermsView, round_name
from protocol.trust import TRUST
from veilsum import contribute, names
from veilsum.asking import promised
from veilsum.contribute import Contribution, teller
from veilsum.features import checked_features, of_file
from veilsum.remote import PATIENCE_S, certificate, naming, operator, trust


@dataclass(frozen=True, kw_only=True)
class Speech(Contribution):
    """What a client's command was asked to do."""

    round_id: str
    features: Path | None


def _wanted(terms: TermsView) -> Wanted:
    """What a round's terms ask for, as the coordinator shows them. The SDK holds them against the signed ones."""
    lattice = FeaturesLattice(terms.lattice_bits) if terms.lattice == FeaturesLattice.name else None
    return Wanted(terms.classes, terms.dim, terms.bias, lattice)


def speak(speech: Speech) -> dict[str, Any]:
    """Upload once and return; a summary of what was acknowledged."""
    round_id = names.round_id(speech.round_id)
    identity = Identity.load(speech.folder)
    statistics = None
    if speech.features is not None:
        features, labels = checked_features(speech.features, speech.labels, normalise=speech.normalise)
        with operator(speech.url, ca=speech.ca, patience_s=PATIENCE_S) as client:
            view = client.round(round_id)
        if view.terms is None:
            raise PeerFault(Cause.MALFORMED, f"round {view.round} is shown without terms", ["coordinator"])
        with of_file(speech.features):
            statistics = Records(features, labels, normalise=speech.normalise)(_wanted(view.terms))
    with _member(speech, identity) as member:
        said = member.speak(round_id, statistics, lineage=speech.lineage)
    return {
        "round": round_id,
        "mode": "helpers",
        "trust": TRUST["helpers"],
        "acknowledged": said.whole,
        "upload_bytes": said.upload_bytes,
        "helpers": list(said.helpers),
        "next": "nothing more is asked of this client; see whether it was counted with `veilsum speak --outcome`"
        if said.whole
        else "the round had moved on; see whether this upload was counted with `veilsum speak --outcome`",
    }


def outcome(speech: Speech, output: Path) -> dict[str, Any]:
    """Wait for the round's end, verify and save; a summary of the result."""
    round_id = names.round_id(speech.round_id)
    identity = Identity.load(speech.folder)
    with _member(speech, identity) as member:
        result = member.outcome(round_id)
    output.mkdir(mode=0o700, parents=True, exist_ok=True)
    result.save(output)
    return summary(result, output)


@contextmanager
def _member(speech: Speech, identity: Identity) -> Iterator[Member]:
    with (
        naming(speech.url),
        Member(
            speech.url,
            identity,
            None,
            speech.policy,
            progress=teller(),
            verify=trust(speech.ca),
            cert=certificate(),
        ) as member,
    ):
        yield member


def summary(result: ClientResult, output: Path) -> dict[str, Any]:
    """What a client's command prints about a result."""
    record = result.record
    return {
        "round": record.round,
        "mode": record.mode,
        "trust": TRUST[record.mode],
        "counted": True,
        "survivors": result.counted.count,
        "of": record.members,
        "outvoted": list(record.outvoted),
        "records": record.records,
        "ridge": record.solution.ridge,
        "condition": record.solution.condition,
        "effective_dof": record.solution.dof,
        **promised(record.noise),
        "weights": list(result.weights.shape),
        "saved": str(output),
    }


def verified(folder: Path, admin_key: bytes | None) -> tuple[dict[str, Any], bool]:
    """Check a saved result of either mode again, offline; a summary of it, and whether its transcript shows nobody who broke a rule."""
    if not ClientResult.saved_in(folder):
        result = Result.load(folder)
        result.verify(admin_key)
        return contribute.summary(result, folder), result.verdict is None or result.verdict.kept
    spoken = ClientResult.load(folder)
    spoken.verify(admin_key)
    return summary(spoken, folder), True


def run_helper(
    folder: Path, url: str, admin_key: str, attempts: int | None, ca: Path | None
) -> dict[str, Any]:
    """Serve rounds until stopped, or until so many attempts have ended."""
    policy = Policy(admin_key=names.admin_key(admin_key))
    identity = Identity.load(folder)
    with (
        naming(url),
        Helper(
            url, identity, None, policy, progress=teller(), verify=trust(ca), cert=certificate()
        ) as helper,
    ):
        ended = helper.run(attempts)
    return {"helper": identity.member, "attempts_ended": ended}


def helper_state(folder: Path) -> dict[str, Any]:
    """What a helper holds, and what it has signed in an attempt that has not ended: the admin compares that before Lost."""
    identity = Identity.load(folder)
    phase = Store(identity.folder).helper()
    if phase is None:
        raise Misuse(f"{folder} has helped in no round yet: start it with `veilsum helper run`")
    standing: Any = getattr(phase, "standing", phase)
    return {
        "helper": identity.member,
        "phase": type(phase).__name__.lower(),
        "attempts_ended": len(standing.history),
        "sets_opened": sum(len(ended.sets) for ended in standing.history),
        "chain": standing.chain.hex(),
        **_under_way(phase),
    }


def _under_way(phase: HelperPhase) -> dict[str, Any]:
    if not isinstance(phase, Attempting):
        return {}
    signed = "nothing"
    if isinstance(phase, Voted):
        what = "the set" if phase.reason == NO_REASON else f"VOID ({phase.reason})"
        signed = f"{what}, outcome {phase.signed.outcome.hex()}"
    return {"round": round_name(phase.attempt.context), "signed": signed}
