"""The attacks of `attacks.json` and `plays.json` against the second implementation. No line of `protocol` runs here."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from assurance.reference.coordinator import Coordinator
from assurance.reference.reference import Member
from assurance.reference.wire import KINDS, Refused, decode

Json = dict[str, Any]
OPENING, REFUSAL, CARDS, PAIRING = 4, 11, 14, 27
REASONS = {"cancel": "cancelled", "damaged": "storage-damaged"}
"""Why an attempt ends, by the step that ends it."""
LATE = {KINDS[name] for name in ("ErasureRequest", "Erased", "Erasure", "Lost")}
"""Kinds of messages that are sent after the latest end."""
MESSAGES = {"roster", "study", "manifest", "opening", "earlier"}
"""Messages with which a script begins."""


def heard(script: Json, messages: list[str]) -> str:
    """Play a script to its last step; return the cause of the refusal there.

    Raises:
        AssertionError: if an earlier step was refused.
    """
    said = {name: bytes.fromhex(messages[script[name]]) for name in MESSAGES & script.keys()}
    party: Any = _coordinator(script, said) if script["to"] == "coordinator" else _member(script, said)
    answer, causes = b"", list[str]()
    for step in script["steps"]:
        assert not causes, f"an earlier step is refused: {causes}"
        if "enrol" in step:
            party = _enrol_again(party, step, messages)
            continue
        party.now = step.get("now_s", party.now)
        try:
            answer = _take(party, step, messages)
        except Refused as refused:
            causes.append(str(refused.args[0]))
    assert bool(causes) == (script["ends"] == "refused"), causes or "the last step is taken"
    if script["ends"] == "refusal":
        return str(decode(answer, "Refusal").cause)
    if causes:
        return causes[0]
    reason = next((REASONS[name] for name in REASONS.keys() & script["steps"][-1]), "")
    asked = party.give_up(reason)
    if script["ends"] == "erasure":
        decode(asked, "ErasureRequest")
        return "terms-expired"
    return str(decode(asked, "VoidRequest").reason)


def shown(attack: Json, document: Json) -> str | None:
    """Bring a member to the place of an attack with one message, and show it the message; return the cause of its refusal."""
    member, place = started(attack["to"], document), attack["attempt"]
    pairings = paired(attack["to"], document)
    for number in range(-1, place + 1):
        attempt = (
            document["attempts"][number] if number >= 0 else {"log": document["enrolment"], "members": {}}
        )
        log = [
            index
            for _, to, index in attempt["log"][: attack["after"] if number == place else None]
            if to == member.name
        ]
        for message in (bytes.fromhex(document["messages"][index]) for index in log):
            with suppress(Refused):  # an opening, which it may know already
                told(member, message, document, pairings, attempt["members"].get(member.name))
    member.now = int(attack.get("now_s") or document["now_s"])
    try:
        answer = member.receive(_false(attack, document))
    except Refused as refused:
        return str(refused.args[0])
    return str(decode(answer, "Refusal").cause) if answer and answer[1] == REFUSAL else None


def told(
    member: Member, message: bytes, document: Json, pairings: Iterator[tuple[Json, bytes]], given: Json | None
) -> list[bytes]:
    """Show a member a message of a round at its time; return its answers. In an attempt that it opens it uploads what is given."""
    member.now = document["late_s" if message[1] in LATE else "now_s"]
    if message[1] == CARDS:
        will_encapsulate(member, *next(pairings))
    answers = [member.receive(message)]
    if message[1] == OPENING and given:
        announced, chunks = _upload(member, given)
        assert [each.hex() for each in chunks] == given["chunks"]
        answers.append(announced)
    return list(filter(None, answers))


def shown_to_coordinator(attack: Json, document: Json) -> str | None:
    """Bring a coordinator to the place of an attack while its cohort forms, and show it the message; return the cause of its refusal."""
    manifest = decode(bytes.fromhex(document["cards"]), "Cards").manifest
    signed = (bytes.fromhex(document["roster"]), bytes.fromhex(document["study"]))
    coordinator = Coordinator(_key(document["coordinator"]), *signed, manifest.counter, manifest.period)
    for source, _, index in document["enrolment"][: attack["after"]]:
        message = bytes.fromhex(document["messages"][index])
        if source != "coordinator":
            coordinator.receive(message)
        elif message[1] == CARDS and not coordinator.manifests:
            coordinator.gather()
    try:
        coordinator.receive(_false(attack, document))
    except Refused as refused:
        return str(refused.args[0])
    return None


def undecoded(attack: Json) -> str | None:
    """Return why no decoder accepts an attack's bytes."""
    try:
        decode(bytes.fromhex(attack["message"]), *KINDS)
    except Refused as refused:
        return str(refused.args[0])
    return None


def _false(attack: Json, document: Json) -> bytes:
    if "message" in attack:
        return bytes.fromhex(attack["message"])
    data = bytearray.fromhex(document["messages"][attack["honest"]])
    for at, gone, instead in reversed(attack["cuts"]):
        data[at : at + gone] = bytes.fromhex(instead)
    return bytes(data)


def started(name: str, document: Json) -> Member:
    """Return a member of a round, which has sent its card."""
    manifest = decode(bytes.fromhex(document["cards"]), "Cards").manifest
    run = {"counter": manifest.counter, "period": manifest.period, "now_s": document["now_s"]}
    said = {kind: bytes.fromhex(document[kind]) for kind in ("roster", "study")}
    return _member({"to": name, **run, **document["members"][name]}, said)


def paired(name: str, document: Json) -> Iterator[tuple[Json, bytes]]:
    """Yield the secrets that a member of a round encapsulated under each manifest, and the pairing that it sent."""
    said = [
        bytes.fromhex(document["messages"][index]) for by, _, index in document["enrolment"] if by == name
    ]
    pairings = (message for message in said if message[1] == PAIRING)
    return zip(document["members"][name]["encapsulated"], pairings, strict=True)


def will_encapsulate(member: Member, secrets: Json, pairing: bytes) -> None:
    """Give a member the secrets, by recipient, and ciphertexts that it is to use for its next pairing."""
    made = dict(zip(sorted(secrets), decode(pairing, "Pairing").ciphertexts, strict=True))
    member.encapsulate = lambda _key, owner: (bytes.fromhex(secrets[owner]), made[owner])


def _member(script: Json, said: dict[str, bytes]) -> Member:
    run = (said["roster"], said["study"], int(script["counter"]), script["period"])
    member = Member(script["to"], _key(script["identity"]), *run, now=script["now_s"])
    drawn = _drawing(script["x25519_private"], script["mlkem_seed"], script["nonce"])
    member.enrol(member.study.expires, drawn, int(script["serial"]))
    return member


def _enrol_again(before: Member, step: Json, messages: list[str]) -> Member:
    """Enrol in a further cohort, with what the member knows."""
    roster, study, repeats = (
        bytes.fromhex(each) for each in (messages[step["roster"]], messages[step["study"]], step["repeats"])
    )
    run = (roster, study, int(step["counter"]), step["period"], repeats)
    before.known.studies.clear()  # a play's studies have one name and version
    member = Member(before.name, before.key, *run, now=step["now_s"], known=before.known)
    drawn = _drawing(step["x25519_private"], step["mlkem_seed"], step["nonce"])
    member.enrol(member.study.expires, drawn, int(step["serial"]))
    return member


def _coordinator(script: Json, said: dict[str, bytes]) -> Coordinator:
    """Make a coordinator with a key of its own: the script has what the true one signed, and its own messages are discarded."""
    manifest, opening = decode(said["manifest"], "Manifest"), decode(said["opening"], "Opening")
    run = (manifest.counter, manifest.period, manifest.repeats)
    coordinator = Coordinator(Ed25519PrivateKey.generate(), said["roster"], said["study"], *run)
    coordinator.settle(manifest)
    vars(coordinator).update(next=opening[1:3], now=script["now_s"])
    coordinator.known.links = opening.links
    coordinator.open(opening.terms)
    if "earlier" in said:
        coordinator.earlier = decode(said["earlier"], "Freeze").earlier
    return coordinator


def _take(party: Any, step: Json, messages: list[str]) -> bytes:
    """Play one step. The coordinator makes its next request when the answers to it arrive."""
    if "wait" in step:
        party.now = step["wait"]
    elif step.keys() & REASONS.keys():
        pass  # the last step: the coordinator gives up
    elif "chunk" in step:
        party.store(step["member"], bytes.fromhex(step["chunk"]))
    elif "vector" in step:
        _upload(party, step)
    else:
        message = bytes.fromhex(messages[step["take"]])
        if "pairing" in step:
            will_encapsulate(party, step["secrets"], bytes.fromhex(messages[step["pairing"]]))
        if "unopened" in step:
            return bytes(party.erase_unopened(bytes.fromhex(messages[step["unopened"]]), message))
        if isinstance(party, Coordinator) and message[1] in ASKS:
            ASKS[message[1]](party)
        return bytes(party.receive(message) or b"")
    return b""


def _upload(member: Member, given: Json) -> tuple[bytes, list[bytes]]:
    below_p = _coefficients(bytes.fromhex(given["coefficients"]), 9 * (1 + member.m.degree)).__next__
    return member.upload(given["vector"], _drawing(given["b_u"], given["salt"]), below_p)


def _freeze(coordinator: Coordinator) -> None:
    if not coordinator.votes:
        coordinator.freeze()


def _certify(coordinator: Coordinator) -> None:
    if not coordinator.shares:
        coordinator.certify()


ASKS: dict[int, Callable[[Coordinator], None]] = {10: _freeze, REFUSAL: _freeze, 13: _certify}
"""By kind of answer, Vote, Refusal and Reveal: the request that comes before the first answer."""


def _key(seed: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(seed))


def _drawing(*values: str) -> Callable[[int], bytes]:
    drawn = iter(values)
    return lambda _count: bytes.fromhex(next(drawn))


def _coefficients(words: bytes, columns: int) -> Iterator[int]:
    """Yield coefficients limb by limb, as shares draw them (wire: Keys); the script has them degree by degree."""
    values = [int.from_bytes(words[i : i + 4], "little") for i in range(0, len(words), 4)]
    for column in range(columns):
        yield from values[column::columns]
