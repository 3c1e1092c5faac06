"""Canaries: no secret is shown, logged, or stored outside the state."""

import logging
from pathlib import Path

import pytest

from client_sdk.identity import Identity
from client_sdk.member import Member
from protocol.codec import Struct
from protocol.member.attempting import Attempting
from tests.client_sdk.federation import Federation

CANARY = b"CANARY-CANARY-CANARY-CANARY-32by"


def forms(secret: bytes) -> tuple[str, ...]:
    return (secret.decode("latin-1"), secret.hex(), repr(secret)[2:-1])


def test_no_repr_and_no_log_shows_a_secret(
    federation: Federation, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr("secrets.token_bytes", lambda count: (CANARY * 9)[:count])
    shown: list[str] = []
    secrets = {CANARY}

    def look(member: str) -> None:
        conversations = federation.open[member]
        session = conversations.session
        for entry in (federation.folder / member / "state/phases").iterdir():
            held = session.store.held(bytes.fromhex(entry.name))
            assert held is not None
            shown.extend(map(repr, (held, held.phase, session, session.store, session.key, conversations)))
            secrets.update(_secrets(held.phase))
        shown.append(repr(session.store.lineage_key()))

    secrets.add(Identity.load(federation.folder / "member-0").key.seed)
    cohort = federation.coordinator.open_cohort()
    flows = {m: federation.member(m).enrol(cohort) for m in federation.ids}
    assert bytes(federation.open["member-0"].session.store.lineage_key()) == CANARY
    running = {m: federation.steps(flow) for m, flow in flows.items()}
    for steps in running.values():
        for _, effect in steps:
            shown.append(repr(effect))
            look("member-0")
            if "cohorts" in repr(effect) and "GET" in repr(effect):
                break
    federation.together({m: federation.member(m).enrol(cohort) for m in federation.ids})
    round_id = federation.coordinator.open_round(cohort)
    for flow in federation.contributions(round_id).values():
        steps = federation.steps(flow)
        for state, effect in steps:
            shown.append(repr(effect))
            look("member-0")
            if state == "waits":
                break
    results = federation.together(federation.contributions(round_id))
    look("member-0")
    shown.extend(map(repr, results.values()))
    shown.extend(repr(event) for _, event in federation.events)
    shown.append(caplog.text)
    assert len(secrets) > 10
    text = "\n".join(shown)
    for secret in secrets:
        for form in forms(secret):
            assert form not in text
    kept = federation.folder / "member-0"
    allowed = {kept / "identity.key", kept / "state/lineage.key", *(kept / "state/phases").iterdir()}
    for path in federation.folder.rglob("*"):
        if path.is_file() and path not in allowed and "member-0" in str(path):
            stored = path.read_bytes()
            assert not any(secret in stored or secret.hex().encode() in stored for secret in secrets), path


def _secrets(phase: object) -> set[bytes]:
    """Every secret field of a stored phase, however deep."""
    found: set[bytes] = set()
    if isinstance(phase, Attempting) and phase.own_shares:
        found.add(bytes(phase.own_shares))
    if isinstance(phase, Struct):
        for name, _ in type(phase).codecs():
            value = getattr(phase, name)
            if type(value).__name__ == "SecretBytes" and len(value) >= 32:
                found.add(bytes(value))
            for item in value if isinstance(value, tuple) else (value,):
                found |= _secrets(item)
    return found


def test_errors_and_objects_at_rest_show_none(tmp_path: Path, federation: Federation) -> None:
    identity = Identity.load(federation.folder / "member-0")
    with Member("https://x", identity, None, federation.policy) as member:
        for thing in (identity, identity.key, identity.__dict__, member, member.__dict__, federation.policy):
            for form in forms(identity.key.seed):
                assert form not in repr(thing)
