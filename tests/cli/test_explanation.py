"""What members read before they approve a study: all of it, and nothing of its author that passes for our words."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest
import typer

from tests.study.specs import NOISE, content_of, whole
from veilsum.cli import explanation
from veilsum.cli.commands import member
from veilsum.cli.explanation import COLUMNS_MIN, QUOTATION_MARK, lay_out_sections
from veilsum.protocol.errors import Misuse
from veilsum.protocol.study import Content
from veilsum.study.explain import explain_study

FAKE = "Noise limits what the whole study tells about one record: ε = 0.1"
FAKE_NAME = "Noise limits what one record tells: ε = 0.1"
BLANKS = {" ", "␣"}
WIDTHS = (40, 61, 80, 132, 200)
each_width = pytest.mark.parametrize(
    "widths", [WIDTHS, pytest.param(range(40, 201), marks=pytest.mark.slow)], ids=["some", "all"]
)


def study(
    purpose: str,
    classes: Iterable[str],
    display: Iterable[str] = (),
    reason: str | None = None,
    **question: Any,
) -> Content:
    records = {"least": 10_000, "most": 20_000, "least_per_class": 5, "rows_per_id": 1}
    values = whole(**{"classes": list(classes), "records": records, **question})
    values["notes"] |= {"purpose": purpose, "display": list(display)}
    if reason is not None:
        values["notes"] |= {"why_not_listable": reason, "why_not_withheld": reason}
    return content_of(values)


def lay_out(content: Content, columns: int) -> list[str]:
    return list(lay_out_sections(explain_study(content), columns))


def own_lines(lines: list[str]) -> list[str]:
    """Return the lines that aren't quotations."""
    return [line for line in lines if not line.startswith(QUOTATION_MARK)]


def quoted_words(lines: list[str]) -> str:
    """Return the quoted text, without the blanks at which it may be wrapped."""
    quoted = "".join(line[len(QUOTATION_MARK) :] for line in lines if line.startswith(QUOTATION_MARK))
    return "".join(each for each in quoted if each not in BLANKS)


def width(line: str) -> int:
    """Return the most columns that a terminal may take for a line."""
    return sum(1 if each.isascii() else 2 for each in line)


def hostile(columns: int) -> dict[str, Content]:
    """Studies whose authors try to begin a line of their own on a terminal of this width."""
    padded = "a head" + " " * max(1, columns - len("a head")) + FAKE
    indented = "x" + " " * 2 * columns + FAKE
    wide = "漢" * columns + " " + FAKE
    invisible = "a\u200b\u00ad\u2060head" + "\u3164\u2800\u00a0\u3000" * columns + FAKE
    hebrew = "שלום " + FAKE + " עולם"
    marks = "a" + "\u0301" * 50 + " " + FAKE + f" {QUOTATION_MARK}  {FAKE}"
    longest = "x" * (columns - 2) + " " + FAKE
    names = ["a" + " " * 15 + FAKE_NAME[:40], "  ".join("abcdefghij"), 'b", "c', "d · e", "f, g"]
    keys = [name.encode("ascii", "replace").decode().strip() for name in names]
    plain = [f"class-{number}" for number in range(len(names))]
    display = ["漢" * 64, "ﷺ" * 64, "m" + "\u3000" * 10 + FAKE_NAME, hebrew[:64], FAKE_NAME + '", "']
    return {
        **{
            name: study(purpose, plain)
            for name, purpose in {
                "padded": padded[:1024],
                "indented": indented[:1024],
                "wide": wide[:1024],
                "invisible": invisible[:1024],
                "hebrew": hebrew,
                "marks": marks,
                "longest": longest,
            }.items()
        },
        "class keys": study("p", keys),
        "display names": study("p", plain, display),
        "reasons": study("p", plain, reason=padded[:1024], withhold=None),
        "columns": study(
            "p", plain, columns=[FAKE_NAME, "b" + " " * 15 + FAKE_NAME, "שלום", *map(str, range(13))]
        ),
        "noisy": study(padded[:1024], plain, withhold=None, noise={**NOISE, "epsilon": 10.0}),
    }


def hostile_studies(widths: Sequence[int]) -> Iterator[tuple[int, str, Content]]:
    return ((columns, name, content) for columns in widths for name, content in hostile(columns).items())


@each_width
def test_no_text_of_the_author_begins_a_line_that_passes_for_ours(widths: Sequence[int]) -> None:
    for columns, name, content in hostile_studies(widths):
        lines = lay_out(content, columns)
        benign = content.model_copy(
            update={
                "notes": content.notes.model_copy(
                    update={
                        "purpose": "p",
                        "display": ("d",) * len(content.notes.display),
                        "why_not_listable": "w",
                        "why_not_withheld": "w",
                    }
                ),
                "question": content.question.model_copy(
                    update={
                        "classes": tuple(f"c{number}" for number in range(len(content.question.classes))),
                        "columns": tuple(f"c{number}" for number in range(len(content.question.columns))),
                    }
                ),
            }
        )
        assert own_lines(lines) == own_lines(lay_out(benign, columns)), (name, columns)
        assert max(map(width, lines)) <= columns, (name, columns)
        assert all(each.isprintable() for line in lines for each in line), name


@each_width
def test_nothing_is_missing(widths: Sequence[int]) -> None:
    for columns, name, content in hostile_studies(widths):
        shown = quoted_words(lay_out(content, columns))
        for text in (
            content.notes.purpose,
            content.notes.why_not_listable if content.question.noise is None else "",
            *map(json_text, content.question.columns),
            *map(json_text, content.notes.display),
            *map(json_text, content.question.classes),
        ):
            visible = "".join(
                each if each.isprintable() else "�"
                for each in text
                if not each.isspace() and each not in "\u3164\u2800"
            )
            assert visible in shown, (name, text)


def json_text(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


@pytest.mark.parametrize("columns", WIDTHS)
def test_ten_thousand_classes_are_all_shown_each_by_itself(columns: int) -> None:
    keys = [f"class {number} {FAKE_NAME[:20].strip()}" for number in range(10_000)]
    content = study("p", keys)
    lines = lay_out(content, columns)
    shown = quoted_words(lines)
    after = content.notes.why_not_listable.replace(" ", "")
    assert shown == "p" + ",".join(json_text(key) for key in keys).replace(" ", "") + after
    assert sum(FAKE_NAME[:20].split(maxsplit=1)[0] in line for line in own_lines(lines)) == 0


def test_class_keys_that_differ_by_blanks_look_different() -> None:
    shown = "\n".join(lay_out(study("p", ["a b", "a  b", "a   b"]), 80))
    assert [f'"{each}"' in shown for each in ("a b", "a ␣b", "a ␣␣b")] == [True] * 3


def test_exact_and_noisy_are_said_in_our_words() -> None:
    exact = own_lines(lay_out(study("noisy: ε = 0.1", ["a", "b"]), 200))
    noisy = own_lines(lay_out(study("exact: no noise", ["a", "b"], withhold=None, noise=NOISE), 200))
    assert [any("exact: no noise" in line for line in lines) for lines in (exact, noisy)] == [True, False]
    assert [any("ε = 10 at δ = 1e-07" in line for line in lines) for lines in (exact, noisy)] == [False, True]


# The question


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ask on a terminal, where every question is answered with yes; return the questions."""
    asked = list[str]()

    def confirm(text: str, **_: object) -> bool:
        asked.append(text)
        return True

    monkeypatch.setattr(typer, "confirm", confirm)
    for stream in (sys.stdin, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    return asked


def test_the_question_says_how_much_noise_there_is(
    terminal: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explanation, "measure_terminal", lambda: COLUMNS_MIN)
    assert member.ask_approval(study(FAKE, ["a", "b"]))
    assert member.ask_approval(study(FAKE, ["a", "b"], withhold=None, noise=NOISE))
    assert ["exact: no noise" in text for text in terminal] == [True, False]
    assert "ε = 10" in terminal[1]


def test_nothing_is_asked_on_a_terminal_that_is_too_narrow(
    terminal: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explanation, "measure_terminal", lambda: COLUMNS_MIN - 1)
    with pytest.raises(Misuse, match="39 columns"):
        member.ask_approval(study("p", ["a", "b"]))
    assert terminal == []


def test_nothing_is_asked_where_the_explanation_goes_elsewhere(
    terminal: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    with pytest.raises(Misuse, match="--approve"):
        member.ask_approval(study("p", ["a", "b"]))
    assert terminal == []
