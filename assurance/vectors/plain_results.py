"""Who reads a record, over again: it holds its fields against what the round's file says was signed. No line of `protocol` is run here."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assurance.reference.study import Study
from assurance.reference.wire import H, Refused, decode, outcome, signable
from assurance.vectors import plain

Case = Mapping[str, Any]
Json = dict[str, Any]
HERE = Path(__file__).parent


def result(case: Case) -> Case:
    """Whether the record follows; Refused with result-mismatch where it does not."""
    record = dict(case["record"])
    document: Json = json.loads((HERE / f"round-{case['round']}.json").read_text("utf-8"))
    attempt: Json = document["attempts"][case["attempt"]]
    roster: Any = decode(bytes.fromhex(document["roster"]), "Roster")
    signature = bytes.fromhex(record.pop("signature"))
    plain.verify(roster.coordinator, signature, bytes.fromhex(plain.record({"record": record})["digest"]))
    study: Any = decode(bytes.fromhex(document["study"]), "Study")
    content, opened = Study(study.content), decode(bytes.fromhex(attempt["opening"]), "Opening")
    shared: Json = {
        "format": "veilsum-result/4",
        "round": attempt["context"][:16],
        "context": attempt["context"],
        "federation": roster.federation.hex(),
        "study": signable(study).hex(),
        "name": content.name,
        "version": content.version,
        "step": opened.terms.step,
        "documents": [],
    }
    told = shared | _following(document, attempt, record, content)
    if (record["noise"] is None) != (content.noise is None):
        raise Refused("result-mismatch", ["noise"])
    if record | told != record or not 0 <= record["rows"] <= content.most * content.rostered:
        raise Refused("result-mismatch", [each for each in told if record[each] != told[each]])
    return {"holds": True}


def _said(document: Json, attempt: Json, kind: int) -> list[str]:
    """What was said of this kind in an attempt, each once."""
    begins = bytes([3, kind]).hex() + attempt["context"]
    texts = [document["messages"][index] for _, _, index in attempt["log"]]
    return list(dict.fromkeys(text for text in texts if text.startswith(begins)))


def _following(document: Json, attempt: Json, record: Json, content: Study) -> Json:
    """What a record of this round must say."""
    opening = decode(bytes.fromhex(attempt["opening"]), "Opening")
    manifest, terms = decode(bytes.fromhex(document["cards"]), "Cards").manifest, opening.terms
    certificate = decode(bytes.fromhex(_said(document, attempt, 12)[0]), "Certificate")
    proofs = [decode(bytes.fromhex(text), "Evictions").proofs for text in _said(document, attempt, 15)]
    dropped = plain.cover({"disputes": record["disputes"]})["covers"] if record["disputes"] else [[]]
    holders = record["holders"] if any(terms.indicator) else []
    if any(terms.indicator) and terms.withheld != content.rare(holders):
        raise Refused("result-mismatch", ["holders"])
    return {
        "cohort": manifest.cohort.hex(),
        "period": manifest.period,
        "terms": H("terms", terms).hex(),
        "survivors_hash": outcome(certificate.context, "none", certificate.survivors).hex(),
        "survivors": [{"member": each.member, "digest": each.digest.hex()} for each in certificate.survivors],
        "dropped": record["dropped"] if record["dropped"] in dropped else dropped[0],
        "evicted": [proof.header.member for proof in (proofs[-1] if proofs else ())],
        "withheld": list(terms.withheld),
        "holders": holders,
        "head": None,
        "transcript": _head(attempt),
    }


def _head(attempt: Json) -> str:
    head = bytes(32)
    for entry in attempt["transcript"]["entries"]:
        head = H("transcript", head, bytes.fromhex(entry))
    return head.hex()
