"""Write the vectors: `python -m assurance.vectors.generate` from the repository's root. The output is reproducible.

Most files hold their own inputs; whole rounds, and cases derived from others, are made here.
"""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from assurance.vectors import cases, invited, ledgers, packs, periods, specification
from assurance.vectors.produce import run
from assurance.vectors.rounds import SCENARIOS, played
from veilsum.protocol.tags import PROTOCOL_VERSION

HERE = Path(__file__).parent
FORMAT = "veilsum-vectors"
FORMAT_VERSION = 2

Json = dict[str, Any]


FOLLOWING: dict[str, tuple[str, Callable[[list[Json]], Iterable[Json]]]] = {
    "merkle": ("merkle", cases.merkle_paths),
    "packing": ("pack", cases.unpacking),
    "shamir": ("deal", cases.recoveries),
    "boxes": ("box", cases.opened_boxes),
    "graph": ("ring", cases.windows),
    "noisy": ("noisy-vector", cases.noise_rules),
}
"""Files with given cases of one function, and the function that derives further cases from them."""
GIVEN = (
    *(
        "keys",
        "pairs",
        "hashes",
        "masks",
        "sizes",
        "covers",
        "outcomes",
        "studies",
        "vectors",
        "records",
        "ids",
        "selections",
        "signatures",
    ),
    *FOLLOWING,
)
"""Files that hold their own inputs: add a case's input there, and run this module for its output."""
KEPT = ("name", "rule", "function", "input")
"""What a case is; the rest is computed."""


def solved(given: Iterable[Json]) -> list[Json]:
    """Return the cases with `protocol`'s output."""
    return [
        {**{key: each[key] for key in KEPT if key in each}, **run(each["function"], each["input"])}
        for each in given
    ]


def solved_again(name: str) -> Json:
    """Return a file's own inputs with `protocol`'s current output, and with derived cases."""
    kept = json.loads((HERE / f"{name}.json").read_text("utf-8"))
    function, following = FOLLOWING.get(name, ("", lambda _: ()))
    made = solved(each for each in kept["cases"] if function in {"", each["function"]})
    about = {key: kept[key] for key in ("sections", "rules") if key in kept}
    return {**about, "cases": made + solved(following(made))}


def judged_twice(made: list[Json]) -> list[Json]:
    """Add judgements after those of the cases."""
    return made + solved(periods.judged_after([each for each in made if each["function"] == "judged"]))


def documents() -> dict[str, Json]:
    """Return every file except attacks and plays, by name."""
    rounds = {name: played(name) for name in SCENARIOS}
    contexts = [each for recorded in rounds.values() for each in solved(cases.contexts(recorded))]
    pairings = solved(cases.pairings(rounds["voided"]))
    messages = [each for name in ("evicted", "voided") for each in solved(cases.messages(rounds[name]))]
    files: dict[str, Json] = {
        **{name: solved_again(name) for name in GIVEN},
        "canaries": {"sections": ["member: Canaries"], "cases": solved(packs.cases())},
        "contexts": {
            "sections": ["wire: Encoding", "wire: Openings"],
            "cases": contexts + solved(cases.context_preimages(contexts)),
        },
        "invitations": {
            "sections": ["member: Approving", "member: Restored folders"],
            "cases": solved([*invited.plays(), *invited.missed_sums()]),
        },
        "ledger": {
            "sections": ["member: Selection", "member: Ledger", "member: Noise"],
            "cases": solved(ledgers.plays()),
        },
        "periods": {
            "sections": ["periods: Rehearsals", "periods: Judgements"],
            "cases": judged_twice(solved(periods.cases())),
        },
        "messages": {
            "sections": ["wire: Cohorts", "wire: Uploads", "wire: Reveals"],
            "rules": ["CIPHER-1", "CIPHER-2", "CIPHER-3"],
            "cases": pairings + messages,
        },
        **{
            f"round-{name}": {"sections": ["wire: States", "analysis: Transcripts"], **each.document}
            for name, each in rounds.items()
        },
    }
    return {
        name: {FORMAT: FORMAT_VERSION, "protocol": PROTOCOL_VERSION, **content}
        for name, content in files.items()
    }


def text_of(document: Json) -> str:
    """Return a file's text with one case to a line, so that diffs are readable."""
    lines = []
    for key, value in document.items():
        if isinstance(value, list) and value and isinstance(value[0], dict | str):
            inner = ",\n".join(json.dumps(each, ensure_ascii=False) for each in value)
            lines.append(f"{json.dumps(key)}: [\n{inner}\n]")
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def told() -> dict[str, Json]:
    """Return what is made from whole rounds: doctored transcripts, and records."""
    from assurance.vectors import heads, results, transcripts  # noqa: PLC0415 - they depend on the rounds

    shared = {FORMAT: FORMAT_VERSION, "protocol": PROTOCOL_VERSION}
    return {
        "transcripts": {
            **shared,
            "sections": ["analysis: Transcripts"],
            "rules": [f"AUDIT-{number}" for number in range(1, 29)],
            "cases": solved(transcripts.cases()),
        },
        "heads": {
            **shared,
            "sections": ["analysis: Results"],
            "cases": solved([*heads.heads(), *heads.sums()]),
        },
        "results": {**shared, "sections": ["analysis: Results"], "cases": solved(results.cases())},
    }


def attacks() -> Json:
    """Export the catalogue of attacks, which replays these rounds."""
    from assurance.attacks.catalogue import exported  # noqa: PLC0415 - it depends on the rounds

    return {FORMAT: FORMAT_VERSION, "protocol": PROTOCOL_VERSION, "attacks": exported()}


def plays() -> Json:
    """Export the attacks with more than one message, as scripts of the attacked party, and what a member erases."""
    from assurance.attacks import erasures, scripts  # noqa: PLC0415 - as above
    from assurance.attacks.catalogue import ATTACKS  # noqa: PLC0415 - as above

    said: dict[str, int] = {}
    made = [*scripts.exported(ATTACKS, said), *erasures.exported(said)]
    return {FORMAT: FORMAT_VERSION, "protocol": PROTOCOL_VERSION, "plays": made, "messages": list(said)}


def main() -> None:
    """Write all files, and the tables of the specification's pages."""
    specification.main()
    for name, document in {**documents(), **told(), "attacks": attacks(), "plays": plays()}.items():
        (HERE / f"{name}.json").write_text(text_of(document), "utf-8")


if __name__ == "__main__":
    main()
