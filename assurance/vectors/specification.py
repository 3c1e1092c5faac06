"""The specification as data: `docs/protocol/protocol.json`, and the tables of its pages, which are made from it.

A page marks each table by a comment, `<!-- rules OPEN -->`, `<!-- messages -->` and so on, alone on a line before it.
"""

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Json = dict[str, Any]
FOLDER = Path(__file__).parents[2] / "docs" / "protocol"
PAGES = tuple(FOLDER / f"{name}.md" for name in ("wire", "member", "periods", "analysis"))
SPECIFICATION: Json = json.loads((FOLDER / "protocol.json").read_text("utf-8"))
RULES: dict[str, Json] = {each["rule"]: each for each in SPECIFICATION["rules"]}
"""Every rule by its name."""
_MARK = re.compile(
    r"^<!-- (?P<what>[a-z ]+?)(?: (?P<name>[A-Z]+))? -->\n\n?(?P<table>(?:\|.*\n)*)", re.MULTILINE
)


def rule_family(name: str) -> str:
    """Return the family of a rule: `OPEN` of `OPEN-2`."""
    return name.rpartition("-")[0]


def _table(*rows: Iterable[str]) -> str:
    head, *body = [f"|{'|'.join(cells)}|" for cells in rows]
    return "\n".join([head, "|" + "---|" * (head.count("|") - 1), *body]) + "\n"


def _rules(family: str) -> str:
    (about,) = (each for each in SPECIFICATION["families"] if each["family"] == family)
    rows = (
        (name, each["condition"], _code(each["cause"]), each["party"])
        for name, each in RULES.items()
        if rule_family(name) == family
    )
    return _table((family, about["checked_by"], "cause", "names"), *rows)


def _code(cause: str) -> str:
    return f"`{cause}`" if re.fullmatch("[a-z-]+-[a-z-]+|[a-z]{6,}", cause) else cause


def _fields(form: Json) -> str:
    return "; ".join(
        " ".join([each["name"], each["type"], *([f"({each['note']})"] if "note" in each else [])])
        for each in form["fields"]
    )


def _messages(_: str) -> str:
    rows = (
        (str(each["kind"]), each["name"], f"{each['from']} → {each['to']}", each["when"], _fields(each))
        for each in SPECIFICATION["messages"]
    )
    return _table(("kind", "message", "sent", "while", "fields"), *rows)


def _structs(_: str) -> str:
    return _table(("struct", "fields"), *((each["name"], _fields(each)) for each in SPECIFICATION["structs"]))


def _causes(_: str) -> str:
    """Causes by what to do; those that no rule has, with their meaning."""
    met = {each["cause"] for each in RULES.values()}
    rows = [
        (
            _join(
                f"`{each['cause']}`" + ("" if each["cause"] in met else f" ({each['meaning']})")
                for each in causes
            ),
            said,
        )
        for action, said in SPECIFICATION["actions"].items()
        if (causes := [each for each in SPECIFICATION["causes"] if each["do"] == action])
    ]
    return _table(("cause", "what to do"), *rows)


def _join(words: Iterable[str]) -> str:
    return ", ".join(words)


def _endpoints(_: str) -> str:
    rows = (
        (
            f"{each['method']} `{each['path'].removeprefix('/v1')}`" + (" ⏳" if each.get("waits") else ""),
            {("none",): "", ("none", "signature"): "(signed)"}.get(tuple(each["proof"]), "signed"),
            each.get("body", ""),
            each["answer"],
        )
        for each in SPECIFICATION["endpoints"]
        if each["for"] == "client"
    )
    return _table(("request", "", "body", "answer"), *rows)


def _cohort_states(_: str) -> str:
    rows = (
        (each["state"], each["meaning"], each["card"], each["cards"], each["pairing"])
        for each in SPECIFICATION["states"]["cohort"]
    )
    return _table(("cohort", "", "PUT a card", "GET the manifest", "PUT or GET a pairing"), *rows)


MOST_IGNORED = 4
"""An ended round ignores all answers."""


def _round_states(_: str) -> str:
    rows = (
        (
            each["state"],
            each["meaning"],
            "; ".join(f"{message} to {to}" for message, to in each["shows"].items()),
            _join(each["takes"]),
            "answers" if len(each["ignores"]) > MOST_IGNORED else _join(each["ignores"]),
        )
        for each in SPECIFICATION["states"]["round"]
    )
    return _table(("round", "", "the request", "takes", "checks and ignores"), *rows)


def _member_states(_: str) -> str:
    rows = (
        (each["state"], each["meaning"], _join(each["takes"])) for each in SPECIFICATION["states"]["member"]
    )
    return _table(("member", "", "takes"), *rows)


TABLES: dict[str, Callable[[str], str]] = {
    "rules": _rules,
    "messages": _messages,
    "structs": _structs,
    "causes": _causes,
    "endpoints": _endpoints,
    "cohort states": _cohort_states,
    "round states": _round_states,
    "member states": _member_states,
}


def render_page(text: str) -> str:
    """Return a page with each marked table as the specification has it."""

    def table_of(mark: re.Match[str]) -> str:
        line, _, _ = mark[0].partition("\n")
        return f"{line}\n\n{TABLES[mark['what']](mark['name'] or '')}"

    return _MARK.sub(table_of, text)


def tables_in(text: str) -> list[tuple[str, str]]:
    """Return the kind and name of each marked table of a page, in order."""
    return [(mark["what"], mark["name"] or "") for mark in _MARK.finditer(text)]


def main() -> None:
    """Write the tables of all pages."""
    for page in PAGES:
        page.write_text(render_page(page.read_text("utf-8")), "utf-8")
