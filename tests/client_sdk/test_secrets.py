"""Canaries: no secret is shown, logged or stored outside the state."""

import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

from client_sdk import database
from client_sdk.database import STATE_FILE
from client_sdk.effects import Flow
from client_sdk.identity import Identity
from client_sdk.member import Member
from tests.support.consortium import Consortium
from tests.support.serving import Stage
from veilsum.protocol.codec import SecretBytes, Struct

CANARY = b"CANARY-CANARY-CANARY-CANARY-32by"


class Witness:
    """Run member-0, print everything printable at each step, and remember every secret that it held."""

    def __init__(self, consortium: Consortium) -> None:
        self.federation, self.home = consortium, consortium.folder / "member-0"
        self.shown: list[str] = []
        self.secrets = {CANARY, Identity.load(self.home).key.seed}
        self.seeds = set[bytes]()
        """Seeds of the member's own masks."""

    def watch(self, flow: Flow[object]) -> None:
        """Run until the flow waits for other members, or ends."""
        for state, effect in self.federation.steps(flow):
            self.shown.append(repr(effect))
            self.look()
            if state == "waits":
                return

    def look(self) -> None:
        conversations = self.federation.open["member-0"]
        session = conversations.session
        for cohort, held in session.store.stored_phases():
            things = (held, held.phase, session, session.store, session.key, conversations)
            self.shown.extend(map(repr, things))
            self.secrets |= secrets_of(held.phase)
            if (unsent := session.store.load_unsent(cohort)) is not None:
                self.shown.append(repr(unsent))
                self.seeds.add(bytes(unsent[0]))
        self.shown.append(repr(session.store.ledger.installation.secret))


def secrets_of(value: object) -> set[bytes]:
    """Return all secret fields at any depth, except empty ones."""
    if isinstance(value, SecretBytes):
        return {bytes(value)} if value else set()
    if isinstance(value, tuple):
        return {secret for item in value for secret in secrets_of(item)}
    if isinstance(value, Struct):
        return {s for name, _ in type(value).codecs.items() for s in secrets_of(getattr(value, name))}
    return set()


def forms(secret: bytes) -> tuple[str, ...]:
    return (secret.decode("latin-1"), secret.hex(), repr(secret)[2:-1])


def test_no_repr_no_log_and_no_other_file_holds_a_secret(
    stage: Stage, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    with monkeypatch.context() as patched:
        patched.setattr(database, "secrets", SimpleNamespace(token_bytes=lambda _: CANARY))
        consortium = Consortium(stage, tmp_path)
    witness = Witness(consortium)
    cohort = consortium.open_cohort()
    records = consortium.records("member-0")
    witness.watch(consortium.member("member-0").enrol(cohort, records))
    consortium.together(consortium.enrolments(cohort))
    round_id = consortium.open_round(cohort)
    for flow in consortium.contributions(round_id, consortium.ids[1:]).values():
        consortium.until(flow, "chunks/1").close()
    witness.watch(consortium.member("member-0").contribute(round_id))
    results = consortium.together(consortium.contributions(round_id))
    witness.look()

    # Two private keys, two pairs' two keys, its own shares and two dealers', a reveal, the canary and the seed.
    assert len(witness.secrets) >= 10
    assert len(witness.seeds) == 1
    witness.secrets |= witness.seeds
    text = "\n".join([*witness.shown, *map(repr, (results, consortium.events)), caplog.text])
    assert [form for secret in witness.secrets for form in forms(secret) if form in text] == []
    state = witness.home / "state" / STATE_FILE
    allowed = {witness.home / "identity.key", state}
    assert CANARY in state.read_bytes()
    for path in witness.home.rglob("*"):
        if path.is_file() and path not in allowed:
            stored = path.read_bytes()
            assert not any(s in stored or s.hex().encode() in stored for s in witness.secrets), path


def test_a_member_and_its_identity_show_no_key(consortium: Consortium) -> None:
    identity = Identity.load(consortium.folder / "member-0")
    with Member("https://x", identity, consortium.policy) as member:
        for thing in (identity, identity.key, identity.__dict__, member, member.__dict__, consortium.policy):
            assert not any(form in repr(thing) for form in forms(identity.key.seed))
