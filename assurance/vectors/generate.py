"""Write the vectors: `python -m assurance.vectors.generate` from the repository's root. The same bytes every time."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from assurance.vectors import cases
from assurance.vectors.produce import run
from assurance.vectors.rounds import SCENARIOS, played
from veilsum.protocol.tags import PROTOCOL_VERSION

HERE = Path(__file__).parent
FORMAT = "veilsum-vectors"
FORMAT_VERSION = 1

Json = dict[str, Any]


def solved(given: Iterable[Json]) -> list[Json]:
    """Cases with what `protocol` makes of them."""
    return [{**each, **run(each["function"], each["input"])} for each in given]


def documents() -> dict[str, Json]:
    """Every file but the attacks, by name."""
    trees, packed = solved(cases.merkle()), solved(cases.packing())
    dealt, sealed, drawn = solved(cases.shamir()), solved(cases.boxes()), solved(cases.graphs())
    rounds = {name: played(name) for name in SCENARIOS}
    contexts = [each for recorded in rounds.values() for each in solved(cases.contexts(recorded))]
    messages = [each for name in ("evicted", "voided") for each in solved(cases.messages(rounds[name]))]
    files: dict[str, Json] = {
        "keys": {"clauses": "§6", "cases": solved(cases.keys())},
        "hashes": {"clauses": "§2", "cases": solved(cases.hashes())},
        "merkle": {"clauses": "§2", "cases": trees + solved(cases.merkle_paths(trees))},
        "masks": {"clauses": "§4.4, §6.5", "cases": solved(cases.masks())},
        "packing": {"clauses": "§10", "cases": packed + solved(cases.unpacking(packed))},
        "shamir": {"clauses": "§10", "cases": dealt + solved(cases.recoveries(dealt))},
        "boxes": {"clauses": "§6.4", "cases": sealed + solved(cases.opened_boxes(sealed))},
        "graph": {"clauses": "§5, §4.6", "cases": drawn + solved(cases.windows(drawn))},
        "sizes": {"clauses": "§5", "cases": solved(cases.sizes())},
        "covers": {"clauses": "§4.5", "cases": solved(cases.covers())},
        "outcomes": {"clauses": "§4.3, §4.6, §4.9", "cases": solved(cases.outcomes())},
        "studies": {
            "clauses": "§4.1, §4.2",
            "cases": solved(cases.studies()) + solved(cases.signed_studies()) + solved(cases.cohorts()),
        },
        "vectors": {
            "clauses": "§8",
            "cases": [
                each
                for made in (cases.vectors, cases.indicators, cases.rare_classes, cases.directions)
                for each in solved(made())
            ],
        },
        "noisy": {"clauses": "§9", "cases": solved(cases.noisy_vectors())},
        "contexts": {
            "clauses": "§4.1–4.3",
            "cases": contexts + solved(cases.context_preimages(contexts)),
        },
        "messages": {"clauses": "§4.4–4.7", "cases": messages},
        "records": {"clauses": "§4.8", "cases": solved(cases.records())},
    }
    files |= {f"round-{name}": {"clauses": "§4, §11", **each.document} for name, each in rounds.items()}
    return {
        name: {FORMAT: FORMAT_VERSION, "protocol": PROTOCOL_VERSION, **content}
        for name, content in files.items()
    }


def text_of(document: Json) -> str:
    """A file's text: cases one to a line, so that a change shows as one."""
    lines = []
    for key, value in document.items():
        if isinstance(value, list) and value and isinstance(value[0], dict | str):
            inner = ",\n".join(json.dumps(each, ensure_ascii=False) for each in value)
            lines.append(f"{json.dumps(key)}: [\n{inner}\n]")
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def told() -> dict[str, Json]:
    """What is made of whole rounds: transcripts that were doctored, and records."""
    from assurance.vectors import results, transcripts  # noqa: PLC0415 - they are built on the rounds

    shared = {FORMAT: FORMAT_VERSION, "protocol": PROTOCOL_VERSION}
    return {
        "transcripts": {**shared, "clauses": "§11", "cases": solved(transcripts.cases())},
        "results": {**shared, "clauses": "§4.8", "cases": solved(results.cases())},
    }


def attacks() -> Json:
    """The catalogue of attacks, which replays these rounds."""
    from assurance.attacks.catalogue import exported  # noqa: PLC0415 - it is built on the rounds

    return {FORMAT: FORMAT_VERSION, "protocol": PROTOCOL_VERSION, "clauses": "§3–§11", "attacks": exported()}


def plays() -> Json:
    """Those of them that take more than one message, as scripts for whoever is attacked."""
    from assurance.attacks.catalogue import ATTACKS  # noqa: PLC0415 - as above
    from assurance.attacks.scripts import exported  # noqa: PLC0415 - as above

    return {FORMAT: FORMAT_VERSION, "protocol": PROTOCOL_VERSION, "clauses": "§4–§12", **exported(ATTACKS)}


def main() -> None:
    """Write them all."""
    for name, document in {**documents(), **told(), "attacks": attacks(), "plays": plays()}.items():
        (HERE / f"{name}.json").write_text(text_of(document), "utf-8")


if __name__ == "__main__":
    main()
