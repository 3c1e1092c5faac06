"""Print how heads do on held-out records: what a member sees of its own, and what a judgement says of all."""

from collections.abc import Iterator, Sequence
from typing import Any

from client_sdk.comparison import Judgement
from veilsum.calibration.judge import NOT_SHARES, Figure, JudgeFigures, ScoreFigures, list_figures
from veilsum.cli.console import JSON_OUTPUT, print_note, print_table, print_values
from veilsum.protocol.forms import count_noun

_CLASSES_SHOWN_MAX = 20
RARE_POSITIVES = 0.1
"""Below this share of positives, heads that predict the likeliest class find few of them."""


def print_comparison(judged: Judgement | None, names: Sequence[str]) -> None:
    """Report how the head does on this member's hold-out records, beside the member's own head."""
    if judged is None:
        print_note(
            "You have no hold-out record of a class that the head predicts. Its accuracy on your data is unknown, and its scores are not probabilities."
        )
        return
    print_table("Recall by class, on your own hold-out set", [*_recall_rows(judged, names)])
    print_note(_accuracy_sentence(judged))
    if judged.unanswered:
        print_note(
            f"Not counted: {judged.unanswered:,} more of classes that the consortium's head never predicts, because the sum has no rows of them."
        )
    for sentence in _comparison_sentences(judged, names):
        print_note(sentence)


def _recall_rows(judged: Judgement, names: Sequence[str]) -> Iterator[dict[str, str]]:
    for each in judged.recalls[:_CLASSES_SHOWN_MAX]:
        own = {} if each.own_recall is None else {"your_own_head": f"{100 * each.own_recall:.1f} %"}
        recall = f"{100 * each.recall:.1f} %"
        yield {"class": names[each.label], "records": f"{each.records:,}", **own, "the_consortium's": recall}


def _accuracy_sentence(judged: Judgement) -> str:
    count = count_noun(judged.records, "record")
    own, own_balanced = judged.own_accuracy, judged.own_balanced_accuracy
    if own is None or own_balanced is None:
        return (
            f"On your own hold-out set ({count}): the consortium's head {100 * judged.accuracy:.1f} %; at equal class shares "
            f"{100 * judged.balanced_accuracy:.1f} %."
        )
    return (
        f"On your own hold-out set ({count}): your own head {100 * own:.1f} %, the consortium's {100 * judged.accuracy:.1f} %; at equal "
        f"class shares {100 * own_balanced:.1f} % and {100 * judged.balanced_accuracy:.1f} %."
    )


def _comparison_sentences(judged: Judgement, names: Sequence[str]) -> Iterator[str]:
    own, own_balanced = judged.own_accuracy, judged.own_balanced_accuracy
    if (more := len(judged.recalls) - _CLASSES_SHOWN_MAX) > 0:
        yield f"{count_noun(more, 'more class', 'more classes')}: see judged.json."
    if judged.worse:
        yield (
            "WARNING: the consortium's head is worse than your own on your records, at equal class shares too. Don't use it before you know why. "
            "Check the order of your classes, your columns and your extractor against the study's; then ask the operator what other members see."
        )
    elif own is not None and own_balanced is not None and own > judged.accuracy:
        if own_balanced < judged.balanced_accuracy:
            yield "Your own head is ahead only at your class shares, which it knows. For patients with other class shares the consortium's is better."
        else:
            yield "Your own head is ahead, but so few records can't tell by how much, or it is ahead because it knows which classes you have."
    if (found := judged.detection) is not None:
        name = names[found.label]
        beside = "" if found.own_auroc is None else f" (your own head's: {found.own_auroc:.3f})"
        yield f"{name}: AUROC {found.auroc:.3f}{beside}, from {found.positives:,} of {judged.records:,} records."
        yield (
            f"The head's predictions find {found.recall * found.positives:.0f} of {found.positives:,}. With a threshold of {found.threshold:+.4g} on the score "
            f"minus the highest other score, it finds {found.threshold_recall * found.positives:.0f}, with {100 * found.false_alarms:.1f} % false alarms "
            "among the other records. The threshold was chosen on these records."
        )
        if found.positives < RARE_POSITIVES * judged.records:
            yield f"{name} is rare: a head that predicts the likeliest class finds few of them. Use a threshold, or an LDA head with equal priors."


def print_figures(figures: JudgeFigures, names: Sequence[str], heads: Sequence[str] = ()) -> None:
    """Report what a judgement says: each figure with its 95 % interval, or how many records it would take.

    Args:
        figures: of the judgement.
        names: of the classes.
        heads: what to call the heads shown, in order; empty for numbers from 1.
    """
    if JSON_OUTPUT.get():
        print_values(describe_figures(figures, names, heads))
        return
    listed = list_figures(figures, names, heads)
    rows = [
        {"figure": name, "value": show_value(name, each), "95_%_interval": show_interval(name, each)}
        for name, each in listed
        if each.is_stated
    ]
    print_table(
        f"Judgement over all members, about {figures.records:,.0f} records",
        rows,
        empty="No figure can be stated.",
    )
    if (score := figures.score) is not None and any(each.recall.is_stated for each in score.levels):
        print_table("Thresholds on the positive class's score minus the highest other", [*_level_rows(score)])
    unsaid = [f"{name} (about {each.records_needed:,})" for name, each in listed if not each.is_stated]
    if unsaid:
        shown = unsaid[:_CLASSES_SHOWN_MAX]
        more = f", and {len(unsaid) - len(shown):,} more" if len(unsaid) > len(shown) else ""
        print_note(f"Too few held-out records for {', '.join(shown)}{more}.")
    if figures.head_accuracies:
        name = heads[figures.chosen] if heads else f"head {figures.chosen + 1}"
        why = "it has the most correct predictions" if figures.chosen else "no other is surely better"
        print_note(f"Use {name}: {why}.")


def describe_figures(
    figures: JudgeFigures, names: Sequence[str], heads: Sequence[str] = ()
) -> dict[str, Any]:
    """Return a judgement as JSON: figures that can't be stated have the records that they need alone."""
    found: dict[str, Any] = {
        "records": round(figures.records),
        "figures": {name: _describe_figure(each) for name, each in list_figures(figures, names, heads)},
        "chosen": heads[figures.chosen] if heads else f"head {figures.chosen + 1}",
    }
    if bins := figures.calibration.list_stated_bins():
        found["bins"] = [
            {"confidence": confidence, "accuracy": _describe_figure(accuracy)}
            for confidence, accuracy in bins
        ]
    if figures.score is not None:
        found["thresholds"] = [
            {
                "threshold": each.threshold,
                "recall": _describe_figure(each.recall),
                "false_alarms": _describe_figure(each.false_alarms),
                "precision": _describe_figure(each.precision),
            }
            for each in figures.score.levels
        ]
    return found


def _describe_figure(figure: Figure) -> dict[str, float]:
    if not figure.is_stated:
        return {"records_needed": figure.records_needed}
    return {"value": figure.value, "low": figure.low, "high": figure.high}


def _level_rows(score: ScoreFigures) -> Iterator[dict[str, str]]:
    for each in score.levels:
        shares = {"recall": each.recall, "false_alarms": each.false_alarms, "precision": each.precision}
        shown = {
            name: f"{show_value(name, one)} ({show_interval(name, one)})" if one.is_stated else "–"
            for name, one in shares.items()
        }
        yield {"threshold": f"{each.threshold:+.4g}", **shown}


def show_value(name: str, figure: Figure) -> str:
    """Write a figure's value: shares in percent."""
    return f"{figure.value:.3g}" if name in NOT_SHARES else f"{100 * figure.value:.1f} %"


def show_interval(name: str, figure: Figure) -> str:
    """Write a figure's 95 % interval: shares in percent."""
    if name in NOT_SHARES:
        return f"{figure.low:.3g} to {figure.high:.3g}"
    return f"{100 * figure.low:.1f} to {100 * figure.high:.1f} %"
