"""Both `protocol` and the second implementation compute the committed vectors."""

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from assurance.reference import wire
from assurance.reference.study import Study
from assurance.reference.wire import H
from assurance.vectors import generate, plain, stranger
from assurance.vectors.produce import run
from veilsum.protocol.messages import Opening
from veilsum.protocol.replay import replay_transcript
from veilsum.protocol.transcript import Transcript

HERE = Path(__file__).parent
NAMES = sorted(path.stem for path in HERE.glob("*.json"))
FILES: dict[str, Any] = {name: json.loads((HERE / f"{name}.json").read_text("utf-8")) for name in NAMES}
CASED = [name for name in NAMES if "cases" in FILES[name]]
ROUNDS = [name for name in NAMES if name.startswith("round-")]
CASES = [(name, each) for name in CASED for each in FILES[name]["cases"]]
NO_PRODUCT = {"mlkem-encapsulate"}
"""Functions that only the second implementation has: `cryptography` draws the message of an encapsulation itself."""


def said_in(case: dict[str, Any]) -> dict[str, Any]:
    """Return what a case says comes of its input."""
    return {key: case[key] for key in ("output", "refused") if key in case}


def test_the_committed_files_are_what_the_generator_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs of inputs that it has are taken from the files: the next tests compute them."""
    known = {(case["function"], json.dumps(case["input"])): said_in(case) for _, case in CASES}
    monkeypatch.setattr(
        generate,
        "run",
        lambda function, given: known.get((function, json.dumps(given))) or run(function, given),
    )
    made = {
        name: generate.text_of(document)
        for name, document in {**generate.documents(), **generate.told()}.items()
    }
    kept = {name: (HERE / f"{name}.json").read_text("utf-8") for name in made}
    assert [name for name in made if made[name] != kept[name]] == []
    # A twentieth of them is of rehearsals and judgements: files of heads, and the ledger after each step.
    assert sum(len((HERE / f"{name}.json").read_bytes()) for name in NAMES) < 5_200_000


def find_large(value: Any, place: str = "") -> list[str]:
    """Return where a JSON value has an integer that not every reader keeps."""
    if isinstance(value, dict):
        return [each for key, inner in value.items() for each in find_large(inner, f"{place}.{key}")]
    if isinstance(value, list):
        return [each for inner in value for each in find_large(inner, f"{place}[]")]
    return [place] if isinstance(value, int) and abs(value) >= 1 << 53 else []


@pytest.mark.parametrize("name", NAMES)
def test_integers_that_readers_may_round_are_strings(name: str) -> None:
    assert find_large(FILES[name]) == []
    for case in FILES[name].get("cases", ()):
        for field in ("sequence", "counter"):
            assert isinstance(case["input"].get(field, ""), str), case["name"]


def over_again(function: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the second implementation's result of a case."""
    try:
        return {"output": plain.FUNCTIONS[function](given)}
    except wire.Refused as refused:
        return {"refused": refused.args[0]}


@pytest.mark.parametrize("function", sorted({case["function"] for _, case in CASES}))
def test_protocol_computes_what_the_vectors_say_and_so_do_integers_and_hashes(function: str) -> None:
    for name, case in CASES:
        if case["function"] == function:
            said = said_in(case)
            assert function in NO_PRODUCT or run(function, case["input"]) == said, (name, case["name"])
            assert function not in plain.FUNCTIONS or over_again(function, case["input"]) == said, (
                name,
                case["name"],
            )


def test_the_product_decapsulates_what_the_second_implementation_encapsulates() -> None:
    cases = FILES["mlkem"]["cases"]
    opened = {
        (case["input"]["ciphertext"], case["output"]["shared"])
        for case in cases
        if case["function"] == "mlkem-decapsulate" and "output" in case
    }
    made = {
        (case["output"]["ciphertext"], case["output"]["shared"])
        for case in cases
        # ACVP has no seed of this key
        if case["function"] == "mlkem-encapsulate" and case["source"].startswith("wycheproof/")
    }
    assert made
    assert made <= opened


def test_covers_are_least() -> None:
    for case in FILES["covers"]["cases"]:
        assert case["output"]["dropped"] in plain.cover(case["input"])["covers"], case["name"]


# Whole rounds

CHEATS = {("round-evicted", "member-4")}


@pytest.mark.parametrize("name", ROUNDS)
def test_a_stranger_says_in_a_round_what_the_vector_says(name: str) -> None:
    """Each of its values too: keys of pairs, seeds, boxes and shares."""
    document = FILES[name]
    messages = [bytes.fromhex(text) for text in document["messages"]]
    formed = wire.decode(bytes.fromhex(document["cards"]), "Cards").manifest
    for member in document["members"]:
        if (name, member) in CHEATS:
            continue
        party, pairings = stranger.started(member, document), stranger.paired(member, document)
        answers = [wire.encode(party.enrolment)]
        for attempt in ({"log": document["enrolment"], "members": {}}, *document["attempts"]):
            given = attempt["members"].get(member)
            for source, to, index in attempt["log"]:
                if source == member:
                    # first comes what was lost in transit
                    while answers.pop(0) != messages[index]:
                        pass
                elif to == member:
                    answers += stranger.told(party, messages[index], document, pairings, given)
                    if given and messages[index][1] == Opening.kind:
                        check_values(party, given)
            answers.clear()
        assert bool(party.places) == (member in formed.members)


def check_values(party: Any, given: dict[str, Any]) -> None:
    """Check what a vector says of a member's upload, once it is made."""
    for name in ("mask_keys", "box_keys"):
        assert {peer: key.hex() for peer, key in getattr(party, name).items()} == given[name]
    for peer, seed in given["r_uv"].items():
        pair = sorted((party.name, peer))
        assert wire.hkdf(party.mask_keys[peer], party.context, "mask-seed", *pair).hex() == seed
    for decryptor, box in zip(party.places, party.announced.boxes, strict=True):
        if decryptor == party.name:
            shares = b"".join(party.shares[decryptor])
        else:
            key = bytes.fromhex(given["sealing_keys"][decryptor])
            shares = AESGCM(key).decrypt(bytes(12), box, party.context)
        assert shares.hex() == given["shares"][decryptor]


@pytest.mark.parametrize("name", ROUNDS)
def test_a_rounds_sum_follows_from_its_vectors(name: str) -> None:
    document = FILES[name]
    study = Study(wire.decode(bytes.fromhex(document["study"]), "Study").content)
    for attempt in document["attempts"]:
        if "sum" in attempt:
            opening = wire.decode(bytes.fromhex(attempt["opening"]), "Opening")
            check_sum(study.bits_of(opening.terms.step), attempt)


def check_sum(bits: int, attempt: dict[str, Any]) -> None:
    """Check that the recovered seeds are the dealt ones, and that the sum is that of the vectors."""
    summed = [member for member in attempt["survivors"] if member not in attempt["evicted"]]
    assert attempt["self_seeds"] == {member: attempt["members"][member]["b_u"] for member in summed}
    for edge, seed in attempt["edge_seeds"].items():
        member, gone = edge.split()
        assert gone not in summed
        assert attempt["members"][member]["r_uv"][gone] == seed
    columns = zip(*(attempt["members"][member]["vector"] for member in summed), strict=True)
    half = 1 << (bits - 1)
    assert attempt["sum"] == [(sum(column) + half) % (2 * half) - half for column in columns]


@pytest.mark.parametrize("name", ROUNDS)
def test_a_rounds_transcripts_name_whom_they_should(name: str) -> None:
    for attempt in FILES[name]["attempts"]:
        transcript = Transcript.from_json(json.dumps(attempt["transcript"]))
        head = bytes(32)
        for entry in transcript.entries:
            head = H("transcript", head, entry)
        assert head == transcript.head
        found = replay_transcript(transcript)
        named = [(list(finding.parties), finding.cause.value) for finding in found.findings]
        cheats = [(["member-4"], "dealer-inconsistent")] if name == "round-evicted" else []
        assert named == cheats
        survivors = attempt.get("survivors", [])
        for member in attempt["members"]:
            counted = member in survivors and member not in attempt["evicted"]
            assert found.counts_upload(member) == counted
