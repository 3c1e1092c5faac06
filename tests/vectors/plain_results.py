"""Who reads a record, over again: it holds its fields against what the round's file says was signed. No line of `protocol` is run here."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.reference.wire import H, decode, outcome
from tests.vectors import plain
from tests.vectors.plain import Refused

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
    shared: Json = {
        "format": "veilsum-result/4",
        "federation": roster.federation.hex(),
        "context": attempt["context"],
        "round": attempt["context"][:16],
        "noise": "none",
        "documents": [],
    }
    expected, most = _following(document, attempt, record)
    told = shared | expected
    if record | told != record or not 0 <= record["records"] <= most:
        raise Refused("result-mismatch", [each for each in told if record[each] != told[each]])
    return {"holds": True}


def _said(document: Json, attempt: Json, kind: int) -> list[str]:
    """What was said of this kind in an attempt, each once."""
    begins = bytes([3, kind]).hex() + attempt["context"]
    texts = [document["messages"][index] for _, _, index in attempt["log"]]
    return list(dict.fromkeys(text for text in texts if text.startswith(begins)))


def _following(document: Json, attempt: Json, record: Json) -> tuple[Json, int]:
    """What a record of this round must say, and of how many records at the most."""
    opening = decode(bytes.fromhex(attempt["opening"]), "Opening")
    manifest, terms = decode(bytes.fromhex(document["cards"]), "Cards").manifest, opening.terms
    certificate = decode(bytes.fromhex(_said(document, attempt, 12)[0]), "Certificate")
    bound, survivors = certificate.context, certificate.survivors
    proofs = [decode(bytes.fromhex(text), "Evictions").proofs for text in _said(document, attempt, 15)]
    dropped = plain.cover({"disputes": record["disputes"]})["covers"] if record["disputes"] else [[]]
    rare = None
    if any(terms.indicator):
        floor = manifest.a + manifest.h_min + terms.margin
        holders = (record["rare"] or {}).get("holders", [])
        rare = {
            "indicator": terms.indicator.hex(),
            "margin": terms.margin,
            "floor": floor,
            "holders": holders,
        }
        if list(terms.withheld) != [place for place, count in enumerate(holders) if count < floor]:
            raise Refused("result-mismatch", ["rare"])
    return {
        "cohort": manifest.cohort.hex(),
        "closing": H("closing", bound, "none", outcome(bound, "none", survivors)).hex(),
        "terms": H("terms", terms).hex(),
        "extractor": terms.extractor.hex(),
        "statistic": terms.statistic,
        "members": len(manifest.members),
        "survivors": [{"member": each.member, "digest": each.digest.hex()} for each in survivors],
        "dropped": record["dropped"] if record["dropped"] in dropped else dropped[0],
        "evicted": [proof.header.member for proof in (proofs[-1] if proofs else ())],
        "withheld": list(terms.withheld),
        "rare": rare,
        "weights_sha256": None,
        "transcript": _head(attempt),
    }, terms.N_max


def _head(attempt: Json) -> str:
    head = bytes(32)
    for entry in attempt["transcript"]["entries"]:
        head = plain.h("transcript", head, bytes.fromhex(entry))
    return head.hex()
