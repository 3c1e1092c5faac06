"""What follows from studies, openings and rows, by the second implementation: no line of `protocol` is run here.

As in `plain`, each function takes a case's inputs as JSON has them; `Refused` carries the cause.
"""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from assurance.reference import records, study, wire
from assurance.reference.reference import Party
from assurance.reference.study import Study
from assurance.reference.wire import H, M, Refused, decode, demand, encode, outcome, raw, sign, u

Case = Mapping[str, Any]


def octets(case: Case, *names: str) -> list[bytes]:
    return [bytes.fromhex(case[name]) for name in names]


def read(case: Case) -> Study:
    return Study(case["content"].encode())


def studied(case: Case) -> Case:
    content = read(case)
    return {
        "question": content.digest.hex(),
        "approval": content.approval.hex(),
        "scale": content.scale if content.noise is None else None,
        "width": max(content.widths),
        "steps": [[step, content.elements_of(step)] for step in content.steps],
    }


def signed_study(case: Case) -> Case:
    seed, federation = octets(case, "seed", "federation")
    made = sign(Ed25519PrivateKey.from_private_bytes(seed), "Study", federation, case["content"].encode())
    return {"study": encode(made).hex(), "hash": wire.signable(made).hex()}


def cohort(case: Case) -> Case:
    roster, named, repeats = octets(case, "roster_hash", "study", "repeats")
    return {"cohort": H("cohort", roster, u(64, case["counter"]), named, case["period"], repeats).hex()}


def vector(case: Case) -> Case:
    return {"elements": read(case).vector(case["rows"], case["labels"], case["withheld"])}


def noisy_vector(case: Case) -> Case:
    content, step = read(case), case["step"]
    return {
        "elements": records.noiseless(content, step, case["rows"], case["labels"], case["material"]),
        "variances": sorted(float(f"{each:.12g}") for each in content.variances(step, case["n_min"])),
    }


def indicator(case: Case) -> Case:
    return {"elements": read(case).indicator(case["labels"])}


def rare(case: Case) -> Case:
    content, holders = read(case), case["holders"]
    withheld = content.rare(holders)
    demand(content.enough_published(holders, withheld), "indicator-mismatch")
    return {"withheld": list(withheld)}


def sizes(case: Case) -> Case:
    numbers: Any = SimpleNamespace(
        a=case["a"], h=case["h_min"], loss=case["loss"], members=case["members_min"]
    )
    came = min(case["nominated"], case["members"])
    counts = case["members"], case["roster"], came, case["nominated"]
    a_d, n_min, t, k, d_max, decrypt = study.sizes(numbers, *counts, fresh=not case["repeats"])
    how = "nominated" if case["nominated"] else "everyone" if decrypt == case["members"] else "drawn"
    q = decrypt + a_d - t + 1
    made = {"committee": how, "decryptors": decrypt, "a_D": a_d, "n_min": n_min, "t": t, "q": q, "k": k}
    return made | {"D_max": d_max}


def outcomes(case: Case) -> Case:
    context, chain = octets(case, "context", "chain")
    survivors = tuple(M.Survivor(each["member"], bytes.fromhex(each["digest"])) for each in case["survivors"])
    demand(bool(survivors) == (case["reason"] == "none"), "malformed")
    chosen = outcome(context, "none", survivors) if survivors else bytes(32)
    cohort_id, question, repeats = octets(case, "cohort", "question", "repeats")
    place = (cohort_id, case["sequence"], case["attempt"], question, case["period"], case["step"], repeats)
    link = M.Link(*place, context, case["reason"], chosen)
    return {
        "survivors_hash": chosen.hex() if survivors else None,
        "void": H("void", context, case["reason"]).hex(),
        "link": raw(link).hex(),
        "chain": H("link", chain, link).hex(),
    }


def context(case: Case) -> Case:
    roster, signed, manifest, opening = octets(case, "roster", "study", "manifest", "opening")
    m, said = decode(manifest, "Manifest"), decode(opening, "Opening")
    party = Party(Ed25519PrivateKey.generate(), roster, signed, m.counter, m.period, m.repeats)
    party.settle(m)
    party.begin(said)
    chain = bytes(32)
    for link in said.links:
        chain = H("link", chain, link)
    return {
        "roster_hash": party.roster_hash.hex(),
        "study": party.study_hash.hex(),
        "cohort": party.cohort.hex(),
        "beacon": H("cards", party.cohort, m.cards_root).hex(),
        "manifest_hash": party.manifest_hash.hex(),
        "chain": chain.hex(),
        "terms_hash": H("terms", said.terms).hex(),
        "context": party.context.hex(),
    }


FUNCTIONS: dict[str, Callable[[Case], Case]] = {
    "study": studied,
    "signed-study": signed_study,
    "cohort": cohort,
    "vector": vector,
    "noisy-vector": noisy_vector,
    "indicator": indicator,
    "rare": rare,
    "sizes": sizes,
    "outcomes": outcomes,
    "context": context,
}

__all__ = ["FUNCTIONS", "Refused"]
