"""A head from one's own files: nobody hears of it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import save

from calibration.head_file import Calibrated
from calibration.questions import Answer, Earlier, Question, Wish
from calibration.questions.alone import Alone, alone, asked_alone
from calibration.rows import as_features, as_labels
from protocol.errors import Misuse
from protocol.rest import HEAD
from veilsum.calibrating.findings import Findings
from veilsum.calibrating.order import DERIVED, Order, changed, judged, records_of
from veilsum.calibrating.saving import save_to
from veilsum.features import MAX_CLASSES, Part, checked_features, of_file, split

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from calibration.layout import Layout

_CHOSEN = {"gcv": "GCV", "given": "you"}


class Local:
    """Records from files, and what an order makes of them.

    Args:
        order: what was asked for.
        files: of features and labels.
        labels: those of one file of features alone.
        classes: C; None for the highest label and one.

    Raises:
        Misuse: files that don't fit together, too many classes, or an output that would replace one.
    """

    def __init__(
        self, order: Order, files: Sequence[Path], *, labels: Path | None = None, classes: int | None = None
    ) -> None:
        if labels is not None and len(files) != 1:
            raise Misuse("--labels goes with one file of features")
        if classes is not None and classes > MAX_CLASSES:
            raise Misuse(f"--classes {classes} is more than {MAX_CLASSES}, the most that a head has")
        order.check_output(files)
        self.order = order
        loaded = [checked_features(path, labels, normalise=order.normalise) for path in files]
        self._dim = loaded[0][0].shape[1]
        self._classes = classes or 1 + max(int(y.max()) for _, y in loaded)
        for path, (features, y) in zip(files, loaded, strict=True):
            with of_file(path):
                as_features(features, self._dim)
                as_labels(y, len(y), self._classes)
        parts = [split(features, y, order.held_share) for features, y in loaded]
        self._fitted = [fitted for fitted, _ in parts]
        self._held = [held for _, held in parts]

    def questions(self) -> list[Question]:
        """What its rounds would ask, in order; of the last nothing is summed yet."""
        summed = list(self._summed())
        earlier = summed[-1].earlier if summed else None
        last = self.order.chain[-1]
        return [*(each.question for each in summed), asked_alone(last, self._wish(last), earlier)]

    def run(self) -> dict[str, Any]:
        """Sum, solve, judge; write the head, what stands beside it, and the report; say how it was found.

        Raises:
            CalibrationError: nothing follows from these records.
            Misuse: as `judged`; sums that this machine's memory does not hold.
        """
        order = self.order
        if order.held_share or order.held_file is not None:
            self._check_memory(self._classes**2, "figures of records held out")
        found = self._ask(order.chain[-1], self._earlier())
        head = self._head(found.answer)
        values = {
            "records": found.answer.records,
            "classes": self._classes,
            "documents": self._save_documents(found.answer),
        }
        seen, records = None, self._judging(head)
        counts = np.bincount(np.concatenate([labels for _, labels in self._fitted]), minlength=self._classes)
        head = changed(head, order, counts, records)
        if records is not None:
            seen = judged(head, *records)
            head = Calibrated(head.head, temperature=seen.temperature)
        save_to(order.output, save(head.arrays, {HEAD: json.dumps(head.notes)}))
        solution, linear = found.answer.solution, order.head not in DERIVED
        values |= {"empty_classes": list(head.head.empty_classes)}
        if linear and found.answer.ridge is not None:
            chosen = found.answer.chosen_by
            values |= {"ridge": found.answer.ridge, "chosen_by": _CHOSEN.get(chosen, chosen)}
        if linear and solution is not None:
            values |= {
                "effective_dof": solution.dof,
                "condition": solution.condition,
                "residual": solution.residual,
            }
        values["saved"] = str(order.output)
        findings = Findings.alone(order.head or "ffc", found, head, seen, derived=not linear)
        return values | findings.figures | findings.report(order.report)

    def _wish(self, name: str) -> Wish:
        """With the parameters of the question that was asked for; what leads there has its own."""
        asked = self.order.asked if name == self.order.chain[-1] else {}
        return Wish(self._dim, self._classes, asked)

    def _earlier(self) -> Earlier | None:
        """What the last question of the chain rests on: the answer to the one before it; None where it is the first."""
        earlier = None
        for each in self._summed():
            earlier = each.earlier
        return earlier

    def _summed(self) -> Iterator[Alone]:
        """The answers to all questions of the chain before the last, in their order."""
        earlier = None
        for name in self.order.chain[:-1]:
            found = self._ask(name, earlier, ridges=False)
            earlier = found.earlier
            yield found

    def _ask(self, name: str, earlier: Earlier | None, *, ridges: bool = True) -> Alone:
        wish, given = self._wish(name), tuple(self.order.ridges) if ridges else ()
        question = asked_alone(name, wish, earlier)
        if given and not question.rows:
            raise Misuse(f"a {name} head takes no --ridge: leave that out")
        self._check_memory(numbers_of(question.layout), f"sums of {name}")
        return alone(name, wish, self._fitted, earlier=earlier, ridges=given, normalise=self.order.normalise)

    def _check_memory(self, numbers: int, what: str) -> None:
        """Refuse at once so many numbers of 8 bytes as this machine does not hold (Misuse)."""
        needed, there = 8 * numbers, memory_bytes()
        if needed > there:
            raise Misuse(
                f"{what} over {self._classes} classes and {self._dim} features take {needed / 1e9:,.1f} GB at the least, and this "
                f"machine has {there / 1e9:,.1f} GB: are the labels class indices from 0, none left out? Else take "
                "another --head, or a larger machine"
            )

    def _head(self, answer: Answer) -> Calibrated:
        if self.order.head in DERIVED:
            document = answer.documents[self.order.head]
            return Calibrated.of(document.arrays, document.notes)
        assert answer.head is not None  # `Order.chain` refuses what ends in none
        return Calibrated(answer.head)

    def _judging(self, head: Calibrated) -> Part | None:
        """The records held out; None for none."""
        if self.order.held_file is not None:
            return records_of(self.order.held_file, head, normalise=self.order.normalise)
        if not self.order.held_share:
            return None
        features, labels = (np.concatenate(each) for each in zip(*self._held, strict=True))
        if not len(labels):
            raise Misuse(
                f"--held-out {self.order.held_share} kept none of so few records back: pass a larger share, or a file"
            )
        return features, labels

    def _save_documents(self, answer: Answer) -> list[str]:
        """What follows beside the head, each in a file beside it."""
        own = self.order.head if self.order.head in DERIVED else None
        names = [name for name in answer.documents if name != own]
        for name in names:
            document = answer.documents[name]
            notes = {HEAD: json.dumps(dict(document.notes))}
            output = self.order.output
            save_to(output.with_name(f"{output.stem}.{name}{output.suffix}"), save(document.arrays, notes))
        return names


def numbers_of(layout: Layout) -> int:
    """How many numbers there are at once at the least: sums as they are added, as they leave and as they are checked.

    The check of V and U scales U, and makes a Schur complement of V's size, and that one's Cholesky factor.
    """
    sums = [block.shape for block in layout.blocks if block.name.startswith("U")]
    return 2 * layout.elements + max((dim * classes + 2 * dim**2 for dim, classes in sums), default=0)


def memory_bytes() -> int:
    """What this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
