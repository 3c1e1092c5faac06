"""The specification is one: its pages, its data, the product, the vectors and the citations in the code agree."""

import json
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from assurance.vectors.specification import (
    FOLDER,
    PAGES,
    RULES,
    SPECIFICATION,
    render_page,
    rule_family,
    tables_in,
)
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import (
    Checking,
    ClosedByAdmin,
    Collecting,
    Erasing,
    Failed,
    Freezing,
    Recovered,
    Revealing,
    Voided,
    VoidedByErasure,
    Voiding,
)
from veilsum.protocol.member import MemberPhase
from veilsum.protocol.messages import Upload
from veilsum.protocol.rest import ROUND_ENDINGS, CohortState, RoundView

Json = dict[str, Any]
ROOT = Path(__file__).parents[2]
VECTORS = {
    path.stem: json.loads(path.read_text("utf-8")) for path in (ROOT / "assurance" / "vectors").glob("*.json")
}
WORDS_MAX = {"wire": 6_500, "member": 3_500, "periods": 1_000, "analysis": 3_500}
FAMILIES = [each["family"] for each in SPECIFICATION["families"]]
LOCAL, OTHERS = "local", "as the rule"
"""Causes of rules that no message breaks, and of those that repeat other rules."""
READ = ("assurance", "client_sdk", "docs", "service", "tests", "training", "veilsum")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_tables_are_those_of_the_data(page: Path) -> None:
    text = page.read_text("utf-8")
    assert render_page(text) == text, "run python -m assurance.vectors.generate"
    assert len(text.split()) <= WORDS_MAX[page.stem]


def test_each_table_stands_on_one_page() -> None:
    found = [
        (page.stem, name)
        for page in PAGES
        for what, name in tables_in(page.read_text("utf-8"))
        if what == "rules"
    ]
    assert sorted(found) == sorted((each["page"], each["family"]) for each in SPECIFICATION["families"])
    others = [what for page in PAGES for what, _ in tables_in(page.read_text("utf-8")) if what != "rules"]
    kinds = ["causes", "cohort states", "endpoints", "member states", "messages", "round states", "structs"]
    assert sorted(others) == kinds


def test_rules_are_numbered_and_name_what_there_is() -> None:
    for family in FAMILIES:
        names = [name for name in RULES if rule_family(name) == family]
        assert names == [f"{family}-{number}" for number in range(1, len(names) + 1)]
    assert {rule_family(name) for name in RULES} == set(FAMILIES)
    assert len(RULES) == len(SPECIFICATION["rules"])
    assert {each["cause"] for each in RULES.values()} <= {*Cause, LOCAL, OTHERS}
    assert {each["party"] for each in RULES.values()} == set(SPECIFICATION["parties"])


def test_causes_are_the_products() -> None:
    said = {each["cause"]: each["meaning"] for each in SPECIFICATION["causes"]}
    assert said == {cause.value: cause.summary for cause in Cause}
    assert {each["do"] for each in SPECIFICATION["causes"]} == set(SPECIFICATION["actions"])
    for each in SPECIFICATION["causes"]:
        assert set(each["party"].split(" or ")) <= set(SPECIFICATION["parties"]), each


PROOFS = {"OperatorToken": "token", "RequestSignature": "signature"}


def test_endpoints_are_the_products() -> None:
    from service.app import create_app  # noqa: PLC0415 - slow
    from service.settings import Settings  # noqa: PLC0415 - as above

    served = {
        (method.upper(), path): operation
        for path, methods in create_app(Settings()).openapi()["paths"].items()
        for method, operation in methods.items()
    }
    said = {(each["method"], each["path"]): each for each in SPECIFICATION["endpoints"]}
    assert said.keys() == served.keys()
    for place, operation in served.items():
        proofs = {
            PROOFS[name] if one else "none" for one in operation.get("security", [{}]) for name in one or [""]
        }
        waits = any(each["name"] == "wait_s" for each in operation.get("parameters", ()))
        each = said[place]
        assert (set(each["proof"]), each.get("waits", False)) == (proofs, waits), place
        assert ("body" in each) == ("requestBody" in operation), place


PHASES = (
    Collecting,
    Checking,
    Freezing,
    Revealing,
    Recovered,
    Failed,
    Voiding,
    Voided,
    Erasing,
    VoidedByErasure,
    ClosedByAdmin,
)


def names_of(forms: Any) -> set[str]:
    return {form.__name__ for form in forms}


def test_states_of_a_round_take_what_the_products_phases_take() -> None:
    states = {each["state"]: each for each in SPECIFICATION["states"]["round"]}
    assert set(states) == set(get_args(RoundView.model_fields["state"].annotation))
    assert {name for name, each in states.items() if each["meaning"].startswith("ended")} == ROUND_ENDINGS
    for phase in PHASES:
        said = states[phase.name]
        assert set(said["takes"]) == names_of(phase.handlers), phase
        assert set(said["ignores"]) == names_of(phase.late), phase
    assert states["done"]["ignores"] == states["recovered"]["ignores"]
    for message in SPECIFICATION["messages"]:
        when, name = set(message["when"].split(", ")), message["name"]
        shown = {state for state, each in states.items() if name in each["shows"]}
        taken = {state for state, each in states.items() if name in each["takes"]}
        if shown | taken:
            assert when == {
                *(shown | taken) - ROUND_ENDINGS,
                *({"ended"} if shown & ROUND_ENDINGS else ()),
            }, name
    assert Upload in Collecting.handlers


def test_states_of_a_member_take_what_its_phases_take() -> None:
    phases = {form.__name__: form for form in MemberPhase.forms.values()}
    said = {each["state"]: set(each["takes"]) for each in SPECIFICATION["states"]["member"]}
    assert said == {name: names_of(form.handlers) for name, form in phases.items()}


def test_states_of_a_cohort_are_the_products() -> None:
    states = [each["state"] for each in SPECIFICATION["states"]["cohort"]]
    assert states == [*get_args(CohortState)]


def citing() -> Iterator[tuple[str, Json]]:
    """Yield each attack, play and case that cites a rule, with its file."""
    for name, document in VECTORS.items():
        for kind in ("attacks", "plays", "cases"):
            yield from ((name, each) for each in document.get(kind, ()) if "rule" in each)


def party_of(parties: list[str]) -> str:
    """Return what the specification calls these parties."""
    match parties:
        case []:
            return "none"
        case ["coordinator"] | ["admin"] | ["operator"]:
            return parties[0]
        case [_]:
            return "sender"
    return "members"


def test_every_rule_has_an_attack_or_a_vector_and_every_one_cites_a_rule() -> None:
    cited = {each["rule"] for _, each in citing()}
    for document in VECTORS.values():
        cited |= {*document.get("rules", ())}
    assert cited - RULES.keys() == set()
    unseen = {name for name, each in RULES.items() if each.get("unseen")}
    assert cited & unseen == set(), "a rule that is met needs no reason"
    assert RULES.keys() - cited - unseen == set(), "add an attack, a case, or the reason why there is none"
    for name in ("attacks", "plays"):
        assert all("rule" in each for each in VECTORS[name][name])


def test_what_is_met_is_what_the_rule_says() -> None:
    for name, cited in citing():
        each = {**cited.get("output", {}), **cited}  # a play over a ledger says it with its last step
        rule = RULES[each["rule"]]
        assert rule["cause"] in {OTHERS, each.get("cause", each.get("refused", LOCAL))}, each["name"]
        if "parties" in each and rule["cause"] != OTHERS:
            party = party_of(each["parties"])
            assert rule["party"] == party or (rule["party"], party) == ("members", "sender"), (
                name,
                each["name"],
            )


def test_a_file_of_vectors_meets_the_causes_of_its_rules() -> None:
    for name, document in VECTORS.items():
        met = {each["refused"] for each in document.get("cases", ()) if "refused" in each}
        for each in document.get("cases", ()):
            met |= {finding["cause"] for finding in each.get("output", {}).get("findings", ())}
        wanted = {RULES[rule]["cause"] for rule in document.get("rules", ())} - {LOCAL, OTHERS}
        assert wanted <= met, (name, wanted - met)


def headings() -> set[str]:
    """Return `page: Heading` of each section of the specification."""
    return {
        f"{page.stem}: {heading}"
        for page in PAGES
        for heading in re.findall("^## (.+)$", page.read_text("utf-8"), re.MULTILINE)
    }


def test_sections_that_vectors_cite_exist() -> None:
    cited = {section for document in VECTORS.values() for section in document.get("sections", ())}
    assert cited
    assert cited - headings() == set()


RULE = re.compile(rf"\b(?:{'|'.join(FAMILIES)})-\d+\b")
SECTION = re.compile(r"\b(wire|member|periods|analysis): ([A-Z][\w ]*?)(?=[,.;:)\"'`\n]| and | or |$)")


def words_of(path: Path) -> Iterator[str]:
    """Yield a file's words for people: of code that an annotation may make look like a citation, its comments and texts."""
    text = path.read_text("utf-8")
    if path.suffix != ".py" or not SECTION.search(text):
        yield text
        return
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type in {tokenize.COMMENT, tokenize.STRING}:
                yield token.string


def test_rules_and_sections_that_texts_cite_exist() -> None:
    """`OPEN-2`, or (wire: Openings). Clauses by number are gone."""
    texts = [
        path
        for folder in READ
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".md", ".h", ".mjs"}
        and path != Path(__file__)
        and "node_modules" not in path.parts
    ]
    known = headings()
    cited = set[str]()
    for path in (*texts, *ROOT.glob("*.md")):
        for words in words_of(path):
            assert {*RULE.findall(words)} <= RULES.keys(), path
            sections = {f"{page}: {name}" for page, name in SECTION.findall(words)}
            assert sections <= known, path
            assert not re.search(r"(?i)protocol[^\n]{0,12} §\d|protocol\.md", words), path
            cited |= sections
    assert len(cited) > 15


def test_the_data_is_beside_the_pages() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {
        "wire.md",
        "member.md",
        "periods.md",
        "analysis.md",
        "protocol.json",
    }
