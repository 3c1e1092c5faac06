"""Print how heads do on held-out records: what a member sees of its own, and what a judgement says of all."""

from collections.abc import Iterator, Sequence

from client_sdk.comparison import Judgement
from veilsum.cli.console import print_note, print_table

_CLASSES_SHOWN_MAX = 20
RARE_POSITIVES = 0.1
"""Below this share of positives, heads that answer the likeliest class find few of them."""


def print_comparison(judged: Judgement | None, names: Sequence[str]) -> None:
    """Report how the head does on this member's hold-out records, beside the member's own head."""
    if judged is None:
        print_note(
            "No hold-out records of classes that the head answers: how good it is on your data is unknown, and the scores are not probabilities."
        )
        return
    print_table("Recall by class, on your own hold-out set", [*_recall_rows(judged, names)])
    print_note(_accuracy_sentence(judged))
    if judged.unanswered:
        print_note(
            f"Not counted: {judged.unanswered:,} more of classes that the consortium's head never answers, because no rows of them are in the sum."
        )
    for sentence in _comparison_sentences(judged, names):
        print_note(sentence)


def _recall_rows(judged: Judgement, names: Sequence[str]) -> Iterator[dict[str, str]]:
    for each in judged.recalls[:_CLASSES_SHOWN_MAX]:
        own = {} if each.own_recall is None else {"your_own_head": f"{100 * each.own_recall:.1f} %"}
        recall = f"{100 * each.recall:.1f} %"
        yield {"class": names[each.label], "records": f"{each.records:,}", **own, "the_consortium's": recall}


def _accuracy_sentence(judged: Judgement) -> str:
    count = f"{judged.records:,} record{'' if judged.records == 1 else 's'}"
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
        yield f"{more:,} more classes: see judged.json."
    if judged.worse:
        yield (
            "WARNING: the consortium's head is worse than your own on your records, at equal class shares too. Don't use it before you know why. "
            "Check the order of your classes, your columns and your extractor against the study's; then ask the operator what other members see."
        )
    elif own is not None and own_balanced is not None and own > judged.accuracy:
        if own_balanced < judged.balanced_accuracy:
            yield "Your own head is ahead at your class shares only: it knows them. For patients with other class shares the consortium's is better."
        else:
            yield "Your own head is ahead, but by no more than so few records can tell, or because it knows which classes you have."
    if (found := judged.detection) is not None:
        name = names[found.label]
        beside = "" if found.own_auroc is None else f" (your own head's: {found.own_auroc:.3f})"
        yield f"{name}: AUROC {found.auroc:.3f}{beside}, from {found.positives:,} of {judged.records:,} records."
        yield (
            f"As it answers, it finds {found.recall * found.positives:.0f} of {found.positives:,}. Called {name} from a score {found.threshold:+.4g} above "
            f"the highest other on, {found.threshold_recall * found.positives:.0f} are found, and {100 * found.false_alarms:.1f} % of the other records are "
            "called so too. The threshold was chosen on these records."
        )
        if found.positives < RARE_POSITIVES * judged.records:
            yield f"{name} is rare: a head that answers the likeliest class finds few of them. Use a threshold, or an LDA head with equal priors."
