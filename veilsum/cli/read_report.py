"""Say what was read from files of records before anything is done with it: rows, columns, classes, what is skipped and why, and hints.

Only the reader of this machine sees it. It names columns and classes, and no value of a record.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from client_sdk.records import normalise_text
from veilsum.cli.console import JSON_OUTPUT, print_note
from veilsum.cli.features import FileRecords, is_class_index
from veilsum.cli.tables import SEVERAL_LABELS_HELP
from veilsum.protocol.forms import count_noun

_LISTED_MAX = 20
"""Columns or classes that a line for people lists."""
_IDS_ROWS_MIN = 20
"""Rows from which a column without repeats is taken for ids."""
_SURE_SEPARATORS, _POSSIBLE_SEPARATORS = "|;", ",/+&"
"""Between several labels in one; the possible ones also stand in the names of single classes."""


@dataclass(frozen=True)
class ReadReport:
    """What was read from one file.

    Attributes:
        source: the file's path, or what a person calls it.
        columns: the features' names; empty if the file names none.
        ids: how many different ids; None without ids.
        classes: usable rows by class key; empty without known classes, and if most rows have a label of their own: these are values.
        skipped: rows by reason, each in one place.
        hints: what may be a mistake.
        canaries: rows of a study's canary pack, which are no records.
    """

    source: str
    rows: int
    features: int
    columns: tuple[str, ...]
    ids: int | None
    classes: dict[str, int]
    skipped: dict[str, int]
    hints: tuple[str, ...]
    canaries: int

    @classmethod
    def of_records(cls, source: str, records: FileRecords, classes: Sequence[str] | None) -> Self:
        """Describe records. Without `classes` nothing is said about labels, because a study decides about them."""
        rows, features = records.features.shape
        columns = tuple(records.columns or ())
        ids = None if records.ids is None else len({*records.keys})
        canaries = 0 if records.canaries is None else len(records.canaries)
        if classes is None:
            return cls(source, rows, features, columns, ids, {}, {}, (), canaries)
        places = records.index_labels(classes)
        finite, any_value = np.isfinite(records.features).all(axis=1), records.features.any(axis=1)
        labelled = np.fromiter((text != "" for text in records.texts), bool, rows)
        reasons = {
            "without a label": ~labelled,
            "with an unknown label": labelled & (places < 0),
            "with NaN, infinity or an empty cell": (places >= 0) & ~finite,
            "all zeros": (places >= 0) & finite & ~any_value,
        }
        skipped = {reason: int(where.sum()) for reason, where in reasons.items() if where.any()}
        counts = np.bincount(places[(places >= 0) & finite & any_value], minlength=len(classes))
        held = {key: int(count) for key, count in zip(classes, counts, strict=True) if count}
        hints = tuple(_label_hints(records, classes))
        if 2 * (counts == 1).sum() > rows > 1:
            held, hints = {}, (*hints, "most rows have a label of their own: is this the column of classes?")
        return cls(source, rows, features, columns, ids, held, skipped, hints, canaries)

    @property
    def values(self) -> dict[str, Any]:
        """The report for scripts."""
        return {"file" if name == "source" else name: value for name, value in vars(self).items()}

    def list_classes(self) -> str:
        """List classes and their rows for people."""
        return "classes " + list_some([f"{key} {count:,}" for key, count in self.classes.items()])

    def render_lines(self) -> Iterator[str]:
        """Yield the report for people."""
        names = f" ({list_some(self.columns)})" if self.columns else ""
        ids = "" if self.ids is None else f", {count_noun(self.ids, 'id')}"
        said = [
            f"{self.source}: {count_noun(self.rows, 'row')} of {count_noun(self.features, 'feature')}{names}{ids}"
        ]
        if self.canaries:
            said.append(f"{count_noun(self.canaries, 'canary', 'canaries')}, not counted as records")
        if self.classes:
            said.append(self.list_classes())
        if self.skipped:
            why = ", ".join(f"{count:,} {reason}" for reason, count in self.skipped.items())
            said.append(f"skipped {sum(self.skipped.values()):,} ({why})")
        yield "; ".join(said)
        for hint in self.hints:
            yield f"Hint: {self.source}: {hint}"


def report_files(
    paths: Sequence[Path], records: Sequence[FileRecords], classes: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """Print a report on each file on stderr, and return them for scripts: with `--json` they belong into the command's object."""
    found = list[dict[str, Any]]()
    of_all = tuple(_numbering_hints(records, classes or ()))
    for path, each in zip(paths, records, strict=True):
        report = ReadReport.of_records(str(path), each, classes)
        report = replace(report, hints=(*_id_hints(each), *report.hints, *of_all))
        found.append(report.values)
        for line in () if JSON_OUTPUT.get() else report.render_lines():
            print_note(line)
    return found


def list_some(names: Sequence[str]) -> str:
    """List names for people, and how many more there are."""
    more = f", … and {len(names) - _LISTED_MAX:,} more" if len(names) > _LISTED_MAX else ""
    return ", ".join(names[:_LISTED_MAX]) + more


def _id_hints(records: FileRecords) -> Iterator[str]:
    """Yield which named columns of records without ids may hold them: a different whole number in each row."""
    rows = len(records.features)
    known = records.ids is not None or rows < _IDS_ROWS_MIN
    for place, name in enumerate(() if known else records.columns or ()):
        column = records.features[:, place]
        if len(np.unique(column)) == rows and (column == np.trunc(column)).all():
            yield f"column {name!r} holds a different whole number in each row, and is read as a feature: if it identifies records, name it by --id-column"


def _numbering_hints(parts: Sequence[FileRecords], classes: Sequence[str]) -> Iterator[str]:
    """Yield that the labels of all files may count classes from 1, so that the first class stays empty."""
    labels = {normalise_text(text) for text in {text for part in parts for text in part.texts}} - {""}
    if len(classes) > 2 and classes[0] == "class-0" and labels == set(map(str, range(1, len(classes)))):
        yield (
            f"labels are class indices, and none is 0, so class-0 has no record: if they count from 1 to {len(classes) - 1}, write each 1 less, "
            "or class keys as text"
        )


def _label_hints(records: FileRecords, classes: Sequence[str]) -> Iterator[str]:
    """Yield what may be wrong with labels: codes taken for class indices, one class spelled twice, several labels in one."""
    rows = Counter(records.texts)
    del rows[""]
    texts = {text: normalise_text(text) for text in rows}
    if all(map(is_class_index, texts.values())) and classes[0] == "class-0":
        codes = sorted({int(text) for text in texts.values()})
        if 0 < 2 * len(codes) < len(classes):
            yield (
                f"{len(codes)} different labels are taken for class indices from 0 to {len(classes) - 1}: if they are codes, write them as text, "
                f"such as code-{codes[-1]}"
            )
    keys = {*classes}
    alike = dict[str, set[str]]()
    for key in {*classes, *texts.values()}:
        alike.setdefault(_fold_key(key), set()).add(key)
    for same in alike.values():
        if len(same) > 1 and (spelled := sorted(same & keys)):
            others = sum(count for text, count in rows.items() if texts[text] in same - keys)
            if len(spelled) > 1:
                yield f"classes {', '.join(map(repr, spelled))} differ only in case or white space: if they are one, spell it alike"
            elif others:
                yield f"{count_noun(others, 'row')} would be in class {spelled[0]!r} without differences in case or white space: fix the spelling, or they are skipped"
    for sign in _SURE_SEPARATORS + _POSSIBLE_SEPARATORS:
        joined = [text for text in texts if _holds_several(text, sign, alike)]
        if joined:
            count = count_noun(sum(rows[text] for text in joined), "row")
            yield f"{count} with several labels, separated by {sign!r}? {SEVERAL_LABELS_HELP}"


def _fold_key(key: str) -> str:
    return "".join(normalise_text(key).casefold().split())


def _holds_several(text: str, sign: str, known: dict[str, set[str]]) -> bool:
    parts = [_fold_key(part) for part in text.split(sign)]
    return (
        len(parts) > 1 and all(parts) and (sign in _SURE_SEPARATORS or all(part in known for part in parts))
    )
