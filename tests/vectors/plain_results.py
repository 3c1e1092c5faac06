"""Who reads a record, over again: it holds its fields against what the round's file says was signed. No line of `protocol` is run here."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.reference.wire import H, decode, outcome
from tests.vectors import plain, plain_helping
from tests.vectors.plain import Refused

Case = Mapping[str, Any]
Json = dict[str, Any]
HERE = Path(__file__).parent
NO_BYTES = hashlib.sha256(b"").hexdigest()


def result(case: Case) -> Case:
    """Whether the record follows; Refused with result-mismatch where it does not."""
    helped, record = case["round"] == "helpers", dict(case["record"])
    name = "helpers-round" if helped else f"round-{case['round']}"
    document: Json = json.loads((HERE / f"{name}.json").read_text("utf-8"))
    attempt: Json = document["attempts"][case["attempt"]]
    roster: Any = decode(bytes.fromhex(document["roster"]), "Roster")
    signature = bytes.fromhex(record.pop("signature"))
    plain_helping.verify(
        roster.coordinator, signature, bytes.fromhex(plain.record({"record": record})["digest"])
    )
    shared: Json = {
        "format": "veilsum-result/3",
        "mode": "helpers" if helped else "members",
        "federation": roster.federation.hex(),
        "context": attempt["context"],
        "round": attempt["context"][:16],
        "noise": "none",
        "documents": [],
    }
    follows = _of_helpers if helped else _of_members
    expected, most = follows(case, document, attempt, record)
    told = shared | expected
    if record | told != record or not 0 <= record["records"] <= most:
        raise Refused("result-mismatch", [each for each in told if record[each] != told[each]])
    return {"holds": True}


def _said(document: Json, attempt: Json, kind: int, source: str = "") -> list[str]:
    """What was said of this kind in an attempt, by this one, each once."""
    begins = bytes([2, kind]).hex() + attempt["context"]
    texts = [document["messages"][index] for by, _, index in attempt["log"] if source in {"", by}]
    return list(dict.fromkeys(text for text in texts if text.startswith(begins)))


def _of_members(_case: Case, document: Json, attempt: Json, record: Json) -> tuple[Json, int]:
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
        "outvoted": [],
        "weights_sha256": None,
        "transcript": _head(attempt),
    }, terms.N_max


def _head(attempt: Json) -> str:
    head = bytes(32)
    for entry in attempt["transcript"]["entries"]:
        head = plain.h("transcript", head, bytes.fromhex(entry))
    return head.hex()


def _of_helpers(case: Case, document: Json, attempt: Json, record: Json) -> tuple[Json, int]:
    """The same for a client, which sees three votes and the path of its own upload."""
    opened = {"roster": document["roster"], "opening": attempt["opening"]}
    [announced] = _said(document, attempt, 34, "client-0")
    plain_helping.counted({**opened, "upload": announced, "counted": case["counted"]})
    proof = plain_helping.decoded(bytes.fromhex(case["counted"]), "HelperCounted")
    opening = plain_helping.decoded(bytes.fromhex(attempt["opening"]), "HelperOpening")
    hashes, terms = plain_helping.context(opened), opening["terms"]
    bound, own = bytes.fromhex(attempt["context"]), proof["survivor"]
    certified = plain_helping.signed_outcome(bound, "exact", plain_helping.floor_of(opening), proof["root"])
    if (
        len(record["survivors"]) != proof["count"]
        or {
            "member": own["member"],
            "digest": own["digest"].hex(),
        }
        not in record["survivors"]
    ):
        raise Refused("result-mismatch", ["survivors"])
    present = [each["member"] for each in opening["manifest"]["cards"]]
    if len(record["outvoted"]) > 1 or not {*record["outvoted"]} <= {*present}:
        raise Refused("result-mismatch", ["outvoted"])
    return {
        "cohort": hashes["cohort"],
        "closing": plain.h("closing", bound, b"none", certified).hex(),
        "terms": hashes["terms_hash"],
        "extractor": terms["extractor"].hex(),
        "statistic": terms["statistic"],
        "members": opening["manifest"]["n"],
        "disputes": [],
        "dropped": [],
        "evicted": [],
        "withheld": [],
        "weights_sha256": NO_BYTES,
    }, terms["N_max"]
