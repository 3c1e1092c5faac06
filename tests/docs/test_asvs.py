"""The answers to ASVS 5.0 leave out nothing of levels 1 and 2, and the tests that they name are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "assurance" / "ASVS.md").read_text("utf-8")
PROMISE = (ROOT / "docs" / "assurance.md").read_text("utf-8")
ROWS = re.findall(r"^\| (\d[\d., –]*) \| (\w+) \| (.*) \|$", PAGE, re.MULTILINE)
LEVELS = """
1: 22 1111122223 112222222223 222 123
2: 122 112 12223 23
3: 3 113 12223 11222233 11122333 3 22333
4: 12233 23333 22 1222
5: 2 112333 113 222
6: 122 111111112222 11223333 112233 22222333 2223 33 2222
7: 222 1111 22 11222 223 22
8: 1233 1123 133 23
9: 111 1222
10: 22 223 22223 1111122222233333 22222 22 222
11: 2233 22233 11233 1222 23 23 33
12: 12233 11 22223
13: 2333 222223 2233 1222233
14: 22 12223333 122
15: 12233 12233 1222222 3333
16: 2 22222 2222 222 2223
17: 23 22223333 22
"""
"""The standard's chapters: each of their sections as the levels of its requirements, in order."""


def required() -> dict[str, int]:
    """Every requirement's level, by its number."""
    found = dict[str, int]()
    for line in LEVELS.strip().splitlines():
        chapter, sections = line.split(": ")
        for place, section in enumerate(sections.split(), 1):
            found |= {f"{chapter}.{place}.{number}": int(level) for number, level in enumerate(section, 1)}
    return found


def numbers(text: str) -> list[str]:
    """`1.2.6–1.2.8, 1.3.1` as the three and the one."""
    found = list[str]()
    for part in text.split(", "):
        first, _, last = part.partition("–")
        section, _, begin = first.rpartition(".")
        other, _, end = (last or first).rpartition(".")
        assert section == other, part
        found += [f"{section}.{number}" for number in range(int(begin), int(end) + 1)]
    return found


def test_the_standard_has_its_requirements() -> None:
    levels = list(required().values())
    assert [levels.count(level) for level in (1, 2, 3)] == [70, 183, 92]


def test_every_requirement_is_answered_once() -> None:
    answered = [number for row in ROWS for number in numbers(row[0])]
    assert sorted(answered) == sorted(number for number, level in required().items() if level < 3)
    assert {answer for _, answer, _ in ROWS} <= {"yes", "partly", "no", "none", "operator"}


def test_every_test_that_is_named_exists() -> None:
    named = re.findall(r"`((?:assurance|tests)/[\w/]+\.py)(?:::(\w+))?`", PAGE + PROMISE)
    assert len(named) > 50
    for path, function in named:
        text = (ROOT / path).read_text("utf-8")
        assert not function or re.search(rf"def {function}\(", text), (path, function)
