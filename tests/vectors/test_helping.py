"""Attempts with mask helpers follow from what was drawn, by `protocol` and by integers and hashes; false records meet their cause."""

import ast
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from protocol.helpers.coordinator import Recovered
from protocol.helpers.messages import HELPER_MESSAGES, HelperSums, parse
from protocol.helpers.unmasking import HelperUnmasking
from tests.vectors import helping, plain, plain_helping, plain_results, stage_helping

HERE = Path(__file__).parent
DOCUMENT: dict[str, Any] = json.loads((HERE / "helpers-round.json").read_text("utf-8"))
ATTEMPTS = list(enumerate(DOCUMENT["attempts"]))
ATTACKS = json.loads((HERE / "attacks.json").read_text("utf-8"))["attacks"]
DOCTORED = [each for each in ATTACKS if each["survives"] == "records doctored"]
DISAGREEING = [each for each in ATTACKS if each["survives"] == "helpers that disagree"]
RESULTS = json.loads((HERE / "results.json").read_text("utf-8"))["cases"]
CHEATS = {(0, helping.FALSE_CLIENT), (1, "helper-0"), (2, "helper-0")}
"""By attempt: whose messages are not what they should be."""

number = pytest.mark.parametrize(("number", "attempt"), ATTEMPTS, ids=[str(each) for each, _ in ATTEMPTS])


def said_by(attempt: dict[str, Any], who: str) -> list[str]:
    return [DOCUMENT["messages"][index] for source, _, index in attempt["log"] if source == who]


def decoded(text: str, name: str) -> dict[str, Any]:
    return plain_helping.decoded(bytes.fromhex(text), name)


# By protocol


@number
def test_each_client_says_what_the_vector_says(number: int, attempt: dict[str, Any]) -> None:
    for client, given in attempt["clients"].items():
        upload, chunks = stage_helping.uploaded(DOCUMENT, number, client)
        assert chunks == given["chunks"]
        assert ([upload.to_bytes().hex()] == said_by(attempt, client)) == ((number, client) not in CHEATS)


@pytest.mark.parametrize("helper", plain_helping.FOUR)
def test_each_helper_says_what_the_vector_says(helper: str) -> None:
    said, sums = stage_helping.helped(DOCUMENT, helper)
    for number, attempt in ATTEMPTS:
        assert sums[number] == attempt["sums"].get(helper, {})
        told = said_by(attempt, helper)
        if (number, helper) in CHEATS:
            said[number], told = (
                [text for text in texts if text[2:4] != f"{HelperSums.kind:02x}"]
                for texts in (said[number], told)
            )
        assert said[number] == told


@number
def test_the_coordinator_makes_of_it_what_the_vector_says(number: int, attempt: dict[str, Any]) -> None:
    assert json.loads(json.dumps(helping.played()[1])).items() <= DOCUMENT.items()
    assert stage_helping.opened(DOCUMENT, number).opening.to_bytes().hex() == attempt["opening"]
    phase = stage_helping.coordinator_at(number)
    assert phase.attempt.context.hex() == attempt["context"]
    assert (phase.name, phase.closing.ended.closing.hex()) == (attempt["ending"], attempt["closing"])
    fault = getattr(phase, "fault", None)
    assert (fault and fault.cause.value, list(fault.parties if fault else ())) == (
        attempt["cause"],
        attempt["parties"],
    )
    if not isinstance(phase, Recovered):
        return
    unmasking, total = HelperUnmasking(phase), list[int]()
    assert (list(unmasking.survivors), list(phase.outvoted)) == (attempt["survivors"], attempt["outvoted"])
    for index in range(phase.attempt.chunks):
        packed = ((u, bytes.fromhex(attempt["clients"][u]["chunks"][index])) for u in unmasking.survivors)
        sums = [attempt["sums"][source.holders[0]][str(j)][index] for j, source in enumerate(phase.sources)]
        total += unmasking.chunk(index, packed, [bytes.fromhex(each) for each in sums]).tolist()
    assert total == attempt["sum"]


# By integers and hashes


def opened(attempt: dict[str, Any]) -> dict[str, str]:
    return {"roster": DOCUMENT["roster"], "opening": attempt["opening"]}


@number
def test_an_uploads_values_follow_from_what_was_drawn(number: int, attempt: dict[str, Any]) -> None:
    assert plain_helping.context(opened(attempt))["context"] == attempt["context"]
    opening, bound = decoded(attempt["opening"], "HelperOpening"), attempt["context"]
    terms, cards = opening["terms"], opening["manifest"]["cards"]
    for card in cards:
        helper = card["member"]
        given = {"identity": DOCUMENT["identities"][helper], "private": attempt["box_privates"][helper]}
        named = {"cohort": card["cohort"].hex(), "member": helper, "expires_s": attempt["expires_s"]}
        assert plain_helping.card({**given, **named})["card"] == said_by(attempt, helper)[0]
    for client, given in attempt["clients"].items():
        for index, chunk in enumerate(given["chunks"]):
            start = index * terms["chunk_elements"]
            elements = given["vector"][start : start + terms["chunk_elements"]]
            inputs = {"bits": terms["ring_bits"], "offset": start, "elements": elements}
            assert plain.masked({**inputs, "added": given["seeds"], "subtracted": []})["packed"] == chunk
        [text] = said_by(attempt, client)
        upload = decoded(text, "HelperUpload")
        assert [each.hex() for each in upload["chunk_digests"]] == [
            sha256(bytes.fromhex(chunk)).hexdigest() for chunk in given["chunks"]
        ]
        for j, (seed, kept) in enumerate(zip(given["seeds"], upload["commitments"], strict=True)):
            inputs = {"context": bound, "client": client, "index": j, "seed": seed}
            assert plain_helping.commitment(inputs)["commitment"] == kept.hex()
        for card, box in zip(cards, upload["boxes"], strict=True):
            helper = card["member"]
            ends = {"private": given["sender_private"], "public": card["box_key"].hex()}
            made = plain_helping.box_key({**ends, "context": bound, "client": client, "helper": helper})
            assert made == {"sender": upload["header"]["sender_key"].hex(), "key": given["box_keys"][helper]}
            dealt = "".join(s for j, s in enumerate(given["seeds"]) if plain_helping.FOUR[j] != helper)
            sealed = plain.box({"key": made["key"], "shares": dealt, "context": bound})["box"]
            is_false = (number, client, helper) == (0, helping.FALSE_CLIENT, helping.MISLED)
            assert (sealed == box.hex()) != is_false


@number
def test_an_end_follows_from_what_was_said(number: int, attempt: dict[str, Any]) -> None:
    texts = [DOCUMENT["messages"][index] for _, _, index in attempt["log"]]
    certificate = next(text for text in texts if text.startswith(f"0229{attempt['context']}"))
    made = plain_helping.certificate({**opened(attempt), "certificate": certificate})
    assert made["closing"] == attempt["closing"]
    before = DOCUMENT["attempts"][number - 1]["chain"] if number else "00" * 32
    link = {"tag": "link", "fields": [before, attempt["closing"]]}
    assert plain.hashed(link)["hash"] == attempt["chain"]
    complaints = {
        receipt["member"]: receipt["complaints"]
        for receipt in (decoded(text, "HelperReceipt") for text in dict.fromkeys(texts) if text[:4] == "0224")
    }
    staying = [survivor["member"] for survivor in decoded(certificate, "HelperCertificate")["survivors"]]
    if not staying:
        assert (attempt["cause"], attempt["sums"]) == ("survivors-too-few", {})
        return
    spared = plain_helping.panel({"complaints": complaints, "a": 1, "n_min": 4})["survivors"]
    assert staying == [each for each in spared if each in attempt["clients"].keys() - attempt["partial"]]
    shape = decoded(attempt["opening"], "HelperOpening")["terms"]
    inputs = {
        "bits": shape["ring_bits"],
        "chunk_elements": shape["chunk_elements"],
        "elements": shape["elements"],
    }
    for sums in attempt["sums"].values():
        for j, chunks in sums.items():
            seeds = [attempt["clients"][client]["seeds"][int(j)] for client in staying]
            assert plain_helping.masks({**inputs, "seeds": seeds})["chunks"] == chunks
    assert settled(texts, attempt["context"]) == (attempt["cause"], attempt.get("outvoted"))
    if "sum" in attempt:
        columns = zip(*(attempt["clients"][client]["vector"] for client in staying), strict=True)
        assert attempt["sum"] == [sum(column) for column in columns]


def settled(texts: list[str], context: str) -> tuple[str | None, list[str] | None]:
    """Why sums end an attempt, or whom they outvote."""
    sums = (decoded(text, "HelperSums") for text in texts if text.startswith(f"022a{context}"))
    lists = {each["member"]: [tuple(digests) for digests in each["digests"]] for each in sums}
    try:
        return None, plain_helping.settle({"sums": lists})["outvoted"]
    except plain.Refused as refused:
        return refused.args[0], None


# What must be refused


@pytest.mark.parametrize("attack", DOCTORED, ids=lambda each: each["name"])
def test_a_doctored_record_meets_its_cause_without_protocol(attack: dict[str, Any]) -> None:
    where = {name: attack[name] for name in ("round", "attempt")}
    [honest] = [each["input"] for each in RESULTS if where.items() <= each["input"].items()]
    shown = {"counted": attack.get("counted", honest.get("counted"))}
    with pytest.raises(plain.Refused) as refused:
        plain_results.result({**where, **shown, "record": honest["record"] | attack["record"]})
    assert refused.value.args[0] == attack["cause"] == "result-mismatch"
    assert len(DOCTORED) == 40


@pytest.mark.parametrize("attack", DISAGREEING, ids=lambda each: each["name"])
def test_helpers_that_disagree_end_the_attempt_without_protocol(attack: dict[str, Any]) -> None:
    lists = {}
    for sums in (decoded(text, "HelperSums") for text in attack["messages"]):
        lists[sums["member"]] = [tuple(digests) for digests in sums["digests"]]
    with pytest.raises(plain.Refused) as refused:
        plain_helping.settle({"sums": lists})
    assert refused.value.args == (attack["cause"], attack["parties"])
    assert attack["cause"] == "helper-disagreement"


def test_the_attempts_hold_what_they_are_for() -> None:
    assert [each["ending"] for each in DOCUMENT["attempts"]] == ["recovered", "recovered", "lost", "voided"]
    kinds = {type(parse(bytes.fromhex(text))).__name__ for text in DOCUMENT["messages"]}
    # what is said to one client alone stands in its cases; the others' signatures are the admin's, and a helper's no
    assert {each.__name__ for each in HELPER_MESSAGES.values()} - kinds == {
        "HelperCounted",
        "HelperLost",
        "HelperRefusal",
    }


def test_it_runs_no_line_of_protocol() -> None:
    for module in (plain, plain_helping, plain_results):
        parsed = ast.parse(Path(module.__file__ or "").read_text("utf-8"))
        found = {node.module or "" for node in ast.walk(parsed) if isinstance(node, ast.ImportFrom)}
        ours = {
            each for each in found if each.split(".")[0] in {"protocol", "client_sdk", "calibration", "tests"}
        }
        assert ours <= {"tests.vectors", "tests.vectors.plain", "tests.reference.wire"}
