"""Lay out the explanation of a study for a terminal, so that no line of its author can pass for ours, and nothing is cut."""

import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from typing import TextIO

from veilsum.protocol.errors import Misuse
from veilsum.study.explain import Quotation, Section

COLUMNS_MIN = 40
"""The narrowest terminal on which an explanation is shown."""
QUOTATION_MARK = "quoted> "
"""Begins each line of the author's words. It begins with a letter, so that a terminal shows the line from left to right."""
_SENTENCE_INDENT, _CONTINUATION_INDENT = "  ", "    "


def measure_terminal() -> int:
    """Return the columns of the terminal that notes are written to."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):  # it is no terminal
        return shutil.get_terminal_size().columns


def check_terminal() -> None:
    """Refuse to ask about an explanation that the terminal is too narrow to show (Misuse)."""
    if (columns := measure_terminal()) < COLUMNS_MIN:
        raise Misuse(
            f"the terminal is too narrow to show the study: got {columns} columns, expected at least {COLUMNS_MIN}. Widen it"
        )


def print_explanation(sections: Iterable[Section], stream: TextIO) -> None:
    """Print an explanation, whole."""
    columns = max(COLUMNS_MIN, measure_terminal())
    stream.write("".join(f"{line}\n" for line in lay_out_sections(sections, columns)))
    stream.flush()


def lay_out_sections(sections: Iterable[Section], columns: int) -> Iterator[str]:
    """Yield the lines of an explanation, none wider than the terminal, which would wrap it without a mark."""
    for section in sections:
        yield section.heading
        for sentence in section.sentences:
            if isinstance(sentence, Quotation):
                yield from _wrap_words(sentence, columns, QUOTATION_MARK, QUOTATION_MARK)
            else:
                yield from _wrap_words(sentence, columns, _SENTENCE_INDENT, _CONTINUATION_INDENT)


def _wrap_words(text: str, columns: int, first: str, following: str) -> Iterator[str]:
    line, used, blank = first, len(first), 0
    for word in text.split(" "):
        for number, (piece, width) in enumerate(_split_word(word, columns - len(following))):
            if number or used + blank + width > columns:
                yield line
                line, used, blank = following, len(following), 0
            line += " " * blank + piece
            used, blank = used + blank + width, 1
    yield line


def _split_word(word: str, columns: int) -> Iterator[tuple[str, int]]:
    """Yield a word in pieces that fit into so many columns, each with its width. What isn't ASCII may take two columns."""
    if word.isascii() and len(word) <= columns:
        yield word, len(word)
        return
    piece, used = "", 0
    for each in word:
        width = 1 if each.isascii() else 2
        if used + width > columns:
            yield piece, used
            piece, used = "", 0
        piece += each
        used += width
    yield piece, used
