"""A head's model card: what its users should know, as Markdown."""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from veilsum.calibration.judge import NOT_SHARES, list_figures

if TYPE_CHECKING:
    from client_sdk.comparison import Judgement
    from client_sdk.result import Result


def model_card(result: "Result") -> str:
    """Describe a head: its kind, its data, its accuracy here, and its limits; or what a judgement says about heads."""
    lines = _judgement_lines(result) if result.spec.judges else _card_lines(result)
    return "\n".join(lines) + "\n"


def _judgement_lines(result: "Result") -> Iterator[str]:
    record, figures = result.record, result.judge_figures
    notes, question = result.content.notes, result.content.question
    names = notes.display or question.classes
    yield f"# Judgement of {record.name}, version {record.version}, period {record.period}"
    yield ""
    yield (
        f"About {figures.records:,.0f} held-out records of {len(result.summed)} members, counted with noise. The figures are those of the first of "
        f"{len(result.shown_heads.heads)} heads shown, with 95 % intervals."
    )
    yield ""
    yield "| figure | value | 95 % interval |"
    yield "|---|---|---|"
    listed = list_figures(figures, names)
    for name, figure in listed:
        if figure.is_stated:
            value, low, high = (_write_number(name, each) for each in (figure.value, figure.low, figure.high))
            yield f"| {_escape_markdown(name)} | {value} | {low} to {high} |"
    unsaid = [_escape_markdown(name) for name, figure in listed if not figure.is_stated]
    if unsaid:
        yield ""
        yield f"Too few records for {', '.join(unsaid)}."
    if (score := figures.score) is not None and any(each.recall.is_stated for each in score.levels):
        yield ""
        yield "| threshold | recall | false alarms | precision |"
        yield "|---|---|---|---|"
        for each in score.levels:
            shares = each.recall, each.false_alarms, each.precision
            shown = (f"{one.value:.1%}" if one.is_stated else "–" for one in shares)
            yield f"| {each.threshold:+.4g} | {' | '.join(shown)} |"
    yield ""
    yield "Each threshold applies to the positive class's score minus the highest other score. Intervals are for patients like those judged, with the members' labels."


def _write_number(name: str, number: float) -> str:
    return f"{number:.3g}" if name in NOT_SHARES else f"{number:.1%}"


def _card_lines(result: "Result") -> Iterator[str]:
    record, content = result.record, result.content
    question, notes = content.question, content.notes
    yield f"# {record.name}, version {record.version}, period {record.period}"
    yield ""
    if notes.purpose:
        yield f"Purpose: {_escape_markdown(notes.purpose)}"
        yield ""
    yield "| | |"
    yield "|---|---|"
    rows = {
        "features": f"{question.dim}, of the extractor with SHA-256 `{question.extractor}`",
        "input": "a feature vector of any length; it is scaled to length 1",
        "summed": ", ".join(each.kind for each in question.statistics),
        "members in the sum": len(result.summed),
        "rows in the sum": f"about {record.rows:,}" if record.noise else f"{record.rows:,}",
        "privacy": (
            "exact sum; members' own sums stay hidden"
            if record.noise is None or question.noise is None
            else f"ε = {record.noise.spent_epsilon:.3g} at δ = {record.noise.delta:g}, for each {question.noise.unit}"
        ),
        "λ": "none" if record.solution.ridge is None else f"{record.solution.ridge:.6g}",
        "round": f"`{record.round}`, record signed by the coordinator",
    }
    for name, value in rows.items():
        yield f"| {name} | {value} |"
    yield ""
    yield "## Classes"
    yield ""
    for index, key in enumerate(question.classes):
        display = _escape_markdown(notes.display[index] if notes.display else key)
        silent = ": never predicted, too few members or no rows" if index in result.unanswered else ""
        yield f"{index}. {display}{f' ({_escape_markdown(key)})' if notes.display else ''}{silent}"
    yield ""
    yield "## How good it is"
    yield ""
    if result.judged is None:
        yield "Not known here: no hold-out records have judged it."
    else:
        yield from _comparison_lines(result.judged, notes.display or question.classes)
    yield ""
    tau = None if result.head is None else result.calibrated.temperature
    yield "## Probabilities"
    yield ""
    if tau is None:
        yield "**The scores are not probabilities**, and neither is their softmax: no temperature was found."
    else:
        yield f"softmax(scores/{tau:.4g})."
    yield ""
    yield "## Limits"
    yield ""
    yield (
        "The sum is of what members contributed: a member that contributed false labels changed the head, and no check can tell. Records "
        "that differ from the members', or another extractor, make the head wrong without a sign. It has not been tested for any use."
    )
    yield ""
    yield "`veilsum verify` checks this card against the signed record, the head and the evidence beside it. This member's own figures are not signed: anyone with this folder can edit them."


def _comparison_lines(judged: "Judgement", names: Sequence[str]) -> Iterator[str]:
    own, own_balanced = judged.own_accuracy, judged.own_balanced_accuracy
    beside = "" if own is None else f" This member's own head: {own:.1%}."
    yield f"Accuracy {judged.accuracy:.1%} on {judged.records:,} hold-out records of this member.{beside}"
    beside = "" if own_balanced is None else f" This member's own head: {own_balanced:.1%}."
    yield f"At equal class shares: {judged.balanced_accuracy:.1%}.{beside}"
    if judged.unanswered:
        yield f"{judged.unanswered:,} more are of classes that this head never predicts."
    if judged.worse:
        yield "**Worse than the member's own head at both class shares: don't use it before you know why.**"
    yield ""
    yield "| class | records | recall | own head's |"
    yield "|---|---|---|---|"
    for each in judged.recalls:
        beside = "" if each.own_recall is None else f"{each.own_recall:.1%}"
        yield f"| {_escape_markdown(names[each.label])} | {each.records:,} | {each.recall:.1%} | {beside} |"
    if (found := judged.detection) is not None:
        name = _escape_markdown(names[found.label])
        yield ""
        yield (
            f"{name}: AUROC {found.auroc:.3f} over {found.positives:,} positives. The head's predictions find {found.recall:.1%} of them. With a threshold of "
            f"{found.threshold:+.4g} on the score minus the highest other score, it finds {found.threshold_recall:.1%}, with {found.false_alarms:.1%} false alarms "
            "among the other records. The threshold was chosen on these records."
        )


def _escape_markdown(text: str) -> str:
    """Escape text for Markdown: a class may be called `<50` or `HLA-B*27`."""
    return re.sub(r"[][\\`*_<>&|]", r"\\\g<0>", text)
