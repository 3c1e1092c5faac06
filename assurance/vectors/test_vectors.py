"""Both `protocol` and the second implementation compute the committed vectors."""

import json
from pathlib import Path
from typing import Any

import pytest

from assurance.reference import wire
from assurance.reference.study import Study
from assurance.reference.wire import H
from assurance.vectors import generate, plain, stranger
from assurance.vectors.produce import run
from assurance.vectors.rounds import played
from assurance.vectors.stage import coordinator_at, sealed, show, started
from tests.support.simulator import of, total_of
from veilsum.protocol.member import Opened
from veilsum.protocol.messages import Cards, Opening, Pairing, Upload, parse_message
from veilsum.protocol.replay import replay_transcript
from veilsum.protocol.tags import PROTOCOL_VERSION
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
def test_each_member_says_in_a_round_what_the_vector_says(name: str) -> None:
    document = FILES[name]
    messages = [bytes.fromhex(text) for text in document["messages"]]
    for member in document["members"]:
        if (name, member) in CHEATS:
            continue
        key, phase, pending = started(document, member)
        for attempt in ({"log": document["enrolment"], "members": {}}, *document["attempts"]):
            for source, to, index in attempt["log"]:
                if source == member:
                    # first comes what was lost in transit
                    while pending.pop(0).to_bytes() != messages[index]:
                        pass
                elif to == member:
                    message = parse_message(messages[index])
                    phase, answers = show(document, member, phase, key, message)
                    if isinstance(phase, Opened) and member in attempt["members"]:
                        given = attempt["members"][member]
                        phase, answers, chunks = sealed(phase, key, given)
                        assert chunks == given["chunks"]
                    pending.extend(answers)
            pending.clear()


@pytest.mark.parametrize("name", ROUNDS)
def test_a_stranger_pairs_as_the_vector_says(name: str) -> None:
    document = FILES[name]
    messages = [bytes.fromhex(text) for text in document["messages"]]
    formed = wire.decode(bytes.fromhex(document["cards"]), "Cards").manifest
    for member in document["members"]:
        party, pairings = stranger.started(member, document), stranger.paired(member, document)
        answers = [wire.encode(party.enrolment)]
        for source, to, index in document["enrolment"]:
            if source == member:
                assert answers.pop(0) == messages[index]
            elif to == member:
                if messages[index][1] == Cards.kind:
                    stranger.will_encapsulate(party, *next(pairings))
                answers += filter(None, [party.receive(messages[index])])
        assert not answers
        assert bool(party.places) == (member in formed.members)


@pytest.mark.parametrize("name", ROUNDS)
def test_a_rounds_values_follow_from_its_inputs_by_integers_and_hashes(name: str) -> None:
    document = FILES[name]
    roots = root_keys(document)
    boxes = 0
    for attempt in document["attempts"]:
        opening = of(Opening, parse_message(bytes.fromhex(attempt["opening"])))
        ends = {"context": attempt["context"]}
        for member, given in attempt["members"].items():
            for peer, key in given["mask_keys"].items():
                assert ratcheted(roots["pair-mask", member, peer], opening) == key
                pair = {"low": min(member, peer), "high": max(member, peer)}
                assert plain.mask_seed({"key": key, **pair, **ends})["seed"] == given["r_uv"][peer]
            for peer, key in given["box_keys"].items():
                assert ratcheted(roots["pair-box", member, peer], opening) == key
            for peer, key in given["sealing_keys"].items():
                inputs = {"dealer": member, "decryptor": peer, "salt": given["salt"], **ends}
                assert plain.box_key({"key": given["box_keys"][peer], **inputs})["key"] == key
            check_upload(bits_of(document, opening), member, given)
            if (name, member) not in CHEATS:
                boxes += check_boxes(document["messages"], member, given, ends)
        if "sum" in attempt:
            check_sum(bits_of(document, opening), attempt)
    assert boxes > 0


def root_keys(document: dict[str, Any]) -> dict[tuple[str, str, str], str]:
    """Derive K_0 by purpose, member and peer, from private keys and what was encapsulated under the last manifest."""
    cards = of(Cards, parse_message(bytes.fromhex(document["cards"])))
    manifest, members, found = cards.manifest, document["members"], {}
    said = (
        parse_message(bytes.fromhex(document["messages"][index])) for _, _, index in document["enrolment"]
    )
    pairings = [each for each in said if isinstance(each, Pairing) and each.manifest == manifest.hash]
    for sender, ciphertexts in ((pairing.member, pairing.ciphertexts) for pairing in pairings):
        secrets = members[sender]["encapsulated"][-1]
        for to, ciphertext in zip(sorted(secrets), ciphertexts, strict=True):
            opened = {"seed": members[to]["mlkem_seed"], "ciphertext": ciphertext.hex()}
            assert plain.mlkem_decapsulate(opened)["shared"] == secrets[to]
            for one, other in ((sender, to), (to, sender)):
                public = cards.by_member[other].x25519_key.hex()
                agreed = plain.agree({"private": members[one]["x25519_private"], "public": public})["shared"]
                pair = {"from": sender, "to": to, "hash": cards.by_member[to].mlkem_key_hash.hex()}
                pair |= {"x25519": agreed, "mlkem": secrets[to], "ciphertext": ciphertext.hex()}
                pair |= {"cohort": manifest.cohort.hex(), "manifest_hash": manifest.hash.hex()}
                for purpose in ("pair-mask", "pair-box"):
                    found[purpose, one, other] = plain.root_key({"purpose": purpose, **pair})["key"]
    return found


def bits_of(document: dict[str, Any], opening: Opening) -> int:
    """Return the ring of an attempt, by the second implementation of the study."""
    study = wire.decode(bytes.fromhex(document["study"]), "Study")
    return Study(study.content).bits_of(opening.terms.step)


def ratcheted(key: str, opening: Opening) -> str:
    """Derive K_s from K_0."""
    for sequence in range(1, opening.sequence + 1):
        key = plain.ratchet({"key": key, "cohort": opening.cohort.hex(), "sequence": sequence})["key"]
    return key


def check_boxes(messages: list[str], member: str, given: dict[str, Any], ends: dict[str, str]) -> int:
    """Check that each box is in the member's upload, if that was not lost; return the number of boxes."""
    begins = (
        bytes([PROTOCOL_VERSION, Upload.kind]).hex()
        + ends["context"]
        + f"{len(member):02x}"
        + member.encode().hex()
    )
    uploads = [text for text in messages if text.startswith(begins)]
    for upload in uploads:
        for peer, key in given["sealing_keys"].items():
            assert plain.box({"key": key, "shares": given["shares"][peer], **ends})["box"] in upload
    return len(uploads) * len(given["sealing_keys"])


def check_upload(bits: int, member: str, given: dict[str, Any]) -> None:
    """Check the only chunk and the shares against vector, seeds and coefficients."""
    for chunk in given["chunks"]:
        seeds = {True: [given["b_u"]], False: []}
        for peer, seed in given["r_uv"].items():
            seeds[peer > member].append(seed)
        inputs = {
            "bits": bits,
            "offset": 0,
            "elements": given["vector"],
            "added": seeds[True],
            "subtracted": seeds[False],
        }
        assert plain.masked(inputs)["packed"] == chunk
    secrets = [given["b_u"], *given["r_uv"].values()]
    width, words = 4 * 9 * len(secrets), bytes.fromhex(given["coefficients"])
    rows = [words[i : i + width] for i in range(0, len(words), width)]
    coefficients = [[int.from_bytes(row[i : i + 4], "little") for i in range(0, width, 4)] for row in rows]
    dealt = plain.deal({"secrets": secrets, "holders": len(given["shares"]), "coefficients": coefficients})
    assert ["".join(each) for each in dealt["shares"]] == list(given["shares"].values())


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
def test_the_coordinator_makes_of_a_round_what_the_vector_says(name: str) -> None:
    """Members' messages, in order, lead the coordinator through the same requests to the same end."""
    round_ = name.removeprefix("round-")
    assert json.loads(json.dumps(played(round_).document)).items() <= FILES[name].items()
    for number, attempt in enumerate(FILES[name]["attempts"]):
        phase = coordinator_at(round_, number, len(attempt["log"]))
        assert phase.attempt.context.hex() == attempt["context"]
        assert phase.name == attempt["ending"]
        assert phase.link.encode().hex() == attempt["link"]
        if "sum" in attempt:
            seeds = {tuple(edge.split()): bytes.fromhex(seed) for edge, seed in attempt["edge_seeds"].items()}
            assert seeds == phase.edge_seeds
            spool = {
                (member, index): bytes.fromhex(chunk)
                for member, given in attempt["members"].items()
                for index, chunk in enumerate(given["chunks"])
            }
            assert total_of(phase, spool).tolist() == attempt["sum"]


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
