"""Heads that follow from the same sums, side by side on hold-out records: for `veilsum calibrate` and `veilsum pilot`."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from client_sdk.comparison import Detection, Judgement, detect_class
from veilsum.calibration import CalibrationError, FFCStatistics, Head, solve_lda
from veilsum.calibration.judge import FINE_LIMIT, INTERVAL_ERRORS
from veilsum.calibration.rows import Floats
from veilsum.cli.console import print_note, print_table
from veilsum.cli.features import Features, Labels
from veilsum.cli.judged_report import RARE_POSITIVES
from veilsum.cli.read_report import list_some
from veilsum.protocol.forms import count_noun

RIDGE, BALANCED_LDA = "ridge", "LDA, equal priors"
NOISY, EXACT_RIDGE = "the noisy head", "ridge, without noise"
TABLE_NAMES = {"random-features": "random features", "ccvr": "CCVR", "ncm": "nearest class mean"}
"""Names of heads that stand in the table only if a study or a command asks for them."""
_RECALLS_SHOWN_MAX = 6
_RARE_SHOWN_MAX = 5


def derive_heads(statistics: FFCStatistics, ridge: Head, prior: Floats | None = None) -> dict[str, Head]:
    """Return the heads that follow from FFC's sums, by name; without LDA if the sums do not determine it.

    Args:
        statistics: the sums, with at least one record.
        ridge: the ridge head of them.
        prior: (C,) class shares where the head is used, for one more LDA head; None for none.
    """
    heads = {RIDGE: ridge, "ridge, unit columns": ridge.with_unit_columns()}
    try:
        lda = solve_lda(statistics)
    except CalibrationError:
        return heads
    counts = statistics.counts
    heads |= {"LDA": lda, BALANCED_LDA: lda.with_prior(counts, np.ones(len(counts)))}
    return heads if prior is None else {**heads, "LDA, chosen priors": lda.with_prior(counts, prior)}


@dataclass(frozen=True)
class HeadTable:
    """Heads on the same hold-out records.

    Attributes:
        names: of the classes.
        judged: the figures of each head, by name.
        first: the head that a study gives, by name: the ridge head, or the noisy one.
        rare: how the first head finds each class that it never predicts, and a positive class below a tenth of the records.
    """

    names: Sequence[str]
    judged: Mapping[str, Judgement]
    first: str
    rare: tuple[Detection, ...]

    @classmethod
    def of_heads(
        cls,
        heads: Mapping[str, Head],
        features: Features,
        labels: Labels,
        names: Sequence[str],
        positive: int | None,
        first: str = RIDGE,
    ) -> Self | None:
        """Judge heads, `first` among them, on records of classes that have records in the sums; None without such records.

        `names` are the classes', and `positive` is the class whose detection is judged, or None.
        """
        head = heads[first]
        answered = ~np.isin(labels, head.empty_classes)
        if not answered.any():
            return None
        rows, truth = features[answered], labels[answered].astype(np.int64)
        unanswered = int((~answered).sum())
        judged = {
            name: Judgement.of_head(head, rows, truth, None, unanswered=unanswered, positive=positive)
            for name, head in heads.items()
        }
        scores = head.answer_scores(rows, normalise=head.scales)
        detected, predicted = {0, 1} if head.classes == 2 else {positive}, {*scores.argmax(axis=1).tolist()}
        found = [
            detect_class(scores, None, truth, each.label)
            for each in judged[first].recalls
            if each.label not in predicted
            or (each.label in detected and each.records < RARE_POSITIVES * len(truth))
        ]
        return cls(names, judged, first, tuple(each for each in found if each is not None))

    def to_json(self) -> dict[str, Any]:
        """Return all figures: `heads` by name, and the `rare` classes as the first head finds them."""
        return {
            "heads": {
                name: each.model_dump(mode="json", exclude_none=True, exclude={"worse"})
                for name, each in self.judged.items()
            },
            "rare": [each.model_dump(mode="json", exclude_none=True) for each in self.rare],
        }

    def print_table(self, how_to_balance: str) -> None:
        """Print the table, and what to use if classes are rare. `how_to_balance` says how to get LDA with equal priors."""
        records = self.judged[self.first].records
        print_table(f"Heads side by side, on {records:,} hold-out records", [*self._list_rows()])
        unsure = [*self._list_unsure()]
        for sentence in self._advise_on_rare(how_to_balance, sure=not unsure):
            print_note(sentence)
        if unsure:
            print_note(
                f"Too few hold-out records for the recall of {list_some(unsure)}: it may be off by more than "
                f"{100 * INTERVAL_ERRORS * FINE_LIMIT:.0f} points. Judge on more records before you choose a head."
            )

    def _list_unsure(self) -> Iterator[str]:
        """Yield each class for which some head's recall is less certain than a judgement would state, with its number of records."""
        for of_class in zip(*(each.recalls for each in self.judged.values()), strict=True):
            records = of_class[0].records
            # With a right and a wrong record more: of few records, all right, the variance is not 0.
            soft = [(each.recall * records + 1) / (records + 2) for each in of_class]
            if max(math.sqrt(share * (1 - share) / records) for share in soft) > FINE_LIMIT:
                yield f"{self.names[of_class[0].label]} ({records:,})"

    def _list_rows(self) -> Iterator[dict[str, str]]:
        for name, judged in self.judged.items():
            row = {
                "head": name,
                "accuracy": _format_percent(judged.accuracy),
                "balanced_accuracy": _format_percent(judged.balanced_accuracy),
            }
            if judged.detection is not None:
                row[f"AUROC of {self.names[judged.detection.label]}"] = f"{judged.detection.auroc:.3f}"
            if len(judged.recalls) <= _RECALLS_SHOWN_MAX:
                row |= {
                    f"recall of {self.names[each.label]}": _format_percent(each.recall)
                    for each in judged.recalls
                }
            else:
                worst = min(judged.recalls, key=lambda each: each.recall)
                row["lowest_recall"] = f"{_format_percent(worst.recall)} ({self.names[worst.label]})"
            yield row

    def _advise_on_rare(self, how_to_balance: str, *, sure: bool) -> Iterator[str]:
        if not self.rare:
            return
        first, lda = self.judged[self.first], self.judged.get(BALANCED_LDA)
        for each in self.rare[:_RARE_SHOWN_MAX]:
            name = self.names[each.label]
            found = f"{self.first} finds {_format_count(each.recall, each.positives)}"
            if lda is not None:
                recall = next(one.recall for one in lda.recalls if one.label == each.label)
                found += f", LDA with equal priors {_format_count(recall, each.positives)}"
            yield (
                f"{name}: {each.positives:,} of {first.records:,} records. Taking the class with the highest score, {found}. "
                f"With a threshold of {each.threshold:+.3g} on {self.first}'s score minus the highest other score, "
                f"{_format_count(each.threshold_recall, each.positives)} are found, with {_format_percent(each.false_alarms)} false alarms among the other records. "
                "The threshold was chosen on these records."
            )
        if (more := len(self.rare) - _RARE_SHOWN_MAX) > 0:
            yield f"{count_noun(more, 'more class', 'more classes')} that {self.first} never predicts: see --json."
        if lda is not None and lda.balanced_accuracy > first.balanced_accuracy:
            yield (
                f"{'Use' if sure else 'If that holds on more records, use'} LDA with equal priors (balanced accuracy {_format_percent(lda.balanced_accuracy)}, {self.first} {_format_percent(first.balanced_accuracy)}), or a "
                f"threshold chosen on hold-out records. {how_to_balance}"
            )
        else:
            yield "Use a threshold chosen on hold-out records."


def _format_percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _format_count(share: float, records: int) -> str:
    return f"{share * records:.0f} of {records:,}"
