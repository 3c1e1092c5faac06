"""Explain a study in plain words, for its author and for members before approval."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from veilsum.calibration.errors import CalibrationError
from veilsum.calibration.privacy.plan import plan
from veilsum.protocol.cost import Cost, estimate_cost, in_bytes
from veilsum.protocol.sizing import count_dropouts
from veilsum.protocol.study import RECIPES, Content, Judge, Noise, Question
from veilsum.study.promise import rows_per_unit

_UNITS = {"record": "one record", "member": "one member's whole data set"}
SAFE_ROWS_PER_NUMBER = 4
"""Rows per number in the sums from which a membership test for a known record is weak.

A typical record moves the best test by up to about √(numbers/rows) deviations. At ½, the test finds 3 % of the summed records at 1 % false
positives.
"""


_BLANKS = re.compile(r"[\s\u115f\u1160\u2800\u3164\uffa0]+")
"""White space, and letters and signs that look like it."""


class Quotation(str):
    """Words of the study's author on one line. Show them as a quotation, so that they can't pass for ours."""

    __slots__ = ()

    @classmethod
    def of_text(cls, text: str) -> "Quotation":
        """Quote a text: runs of blanks become one blank, and invisible characters become visible."""
        return cls("".join(each if each.isprintable() else "�" for each in _BLANKS.sub(" ", text).strip()))

    @classmethod
    def of_names(cls, names: Iterable[str]) -> "Quotation":
        """Quote each name by itself, so that none can pass for two. A blank after another is written as ␣."""
        shown = (re.sub(r"(?<= ) ", "␣", name) for name in names)
        return cls.of_text(", ".join(json.dumps(name, ensure_ascii=False) for name in shown))


@dataclass(frozen=True)
class Section:
    """A heading and the sentences under it; those of the study's author are quotations."""

    heading: str
    sentences: tuple[str, ...]


def explain_study(content: Content) -> tuple[Section, ...]:
    """Explain a study: its sums, the records, what each party learns, the cost, and what it does not protect."""
    question = content.question
    return (
        Section("What is summed", tuple(_explain_sum(content))),
        Section("Which records", tuple(_explain_records(content))),
        Section("What each party learns", tuple(_explain_readers(content))),
        Section("What it costs", tuple(_explain_costs(question))),
        Section("What it does not protect", tuple(_explain_limits(question))),
    )


def _explain_sum(content: Content) -> Iterator[str]:
    question, notes = content.question, content.notes
    last = (
        datetime.fromtimestamp(notes.expires - 1, UTC).date().isoformat()
    )  # a draft's date expires at its end
    yield f"Study {notes.name}, version {notes.version}. Its last day is {last} (UTC)."
    yield f"Its sums are {name_noise(question)}."
    if notes.purpose:
        yield "Its purpose, in the words of its author:"
        yield Quotation.of_text(notes.purpose)
    yield f"Each row has {question.dim:,} features, from the extractor with SHA-256 {question.extractor}."
    if question.columns:
        yield "They are named, in this order:"
        yield Quotation.of_names(question.columns)
    yield f"{len(question.classes):,} classes, in this order:"
    yield Quotation.of_names(question.classes)
    if notes.display:
        yield "Pages show them under these names, in the same order:"
        yield Quotation.of_names(notes.display)
    for statistic in question.statistics:
        match statistic.kind:
            case "ffc":
                constant = " with a constant" if question.constant else ""
                yield f"FFC{constant}: the second moments of all features, the feature sum of each class, and the number of rows of each class."
            case "random-features":
                yield f"FFC of {statistic.size:,} random features (bandwidth {statistic.bandwidth:g}), for a kernel head."
            case "ccvr":
                yield "CCVR: for each class the number of rows, the feature sum and the second moments."


def _explain_records(content: Content) -> Iterator[str]:
    question, records = content.question, content.question.records
    if content.rehearsal is not None:
        yield (
            "Before a member takes part, it compares its features of public inputs, the canaries, with those of the study's author. No two rows of "
            f"length 1 may differ by more than {content.rehearsal.tolerance:g}. The member alone sees the outcome."
        )
    if question.noise is None:
        yield f"A member takes part with at least {records.least:,} rows and uses at most {records.most:,}."
    else:
        yield f"A member takes part with any number of rows. It uses all of them, and clips their sums to the size of {records.most:,} rows."
    yield f"At most {records.rows_per_id:,} {_by_number(records.rows_per_id, 'row of a record (one id) is', 'rows of a record (one id) are')} used."
    if records.rows_per_id > 1 and question.noise is None:
        yield f"Rows of one record may be alike, so an exact sum needs {records.rows_per_id:,} times as many."
    if question.noise is None:
        yield "Each record enters one sum of this extractor, once. This cannot be repeated or taken back: later runs use records that no sum holds."
        left_out = ", including those of classes that it leaves out," if question.withhold is not None else ""
        yield (
            f"A certified sum spends the records that its members reserved{left_out} even if no result follows. A sum that the admin closes as "
            "lost spends the records of members that had uploaded to it. After any other end the records are free for another run."
        )
    else:
        yield "Each record enters this study once and keeps its spent budget for life, in every later study."
    if question.judge is not None:
        yield from _explain_judge(question.judge)


def _explain_judge(judge: Judge) -> Iterator[str]:
    number = f"{judge.heads} {_by_number(judge.heads, 'head', 'heads')}"
    yield (
        f"In periods judge-…, members evaluate up to {number} on held-out records, with noise: ε = {judge.epsilon:g} at δ = {judge.delta:g} "
        "for one record. A held-out record is judged once, for life, and is never summed."
    )


def _explain_readers(content: Content) -> Iterator[str]:
    question = content.question
    readers = {"members": "The members", "anyone": "Anyone who reaches the coordinator"}[
        content.after.readers
    ]
    quorum = question.smallest.quorum
    yield (
        f"The coordinator and the readers that the roster names learn the sums over at least {quorum.survivors_min:,} members; at "
        f"least {quorum.survivors_min - question.a:,} of them are honest if no more than {question.a:,} collude. "
        "They learn nothing else about one member's numbers."
    )
    if question.noise is None:
        rows = question.least_rows(quorum)
        whole = "A sum" if question.withhold is None else "A sum of all classes"
        yield f"{whole} includes at least {rows:,} rows of honest members, for {question.width:,} dimensions."
        if question.withhold is not None:
            rows = question.rows_needed
            yield (
                f"A sum that leaves classes out includes at least {rows:,}, unless a colluder lies in the counts. If members count fewer, no sum "
                "is made and nothing is spent."
            )
        if rows < (weak := SAFE_ROWS_PER_NUMBER * question.elements):
            yield (
                "A person with a copy of a record can test whether it is in the sum. "
                f"The test becomes weak only at {weak:,} rows: {SAFE_ROWS_PER_NUMBER} for each number that is summed."
            )
        yield "The sum is exact. That is safe only if no list of 10^12 rows can hold every input that a patient could have. The author says:"
        yield Quotation.of_text(content.notes.why_not_listable)
        yield "If this is wrong, this sum gives patients' records back."
    chosen = "chosen by cross-validation" if question.noise is None else "set by the size of the noise"
    ridge = chosen if content.after.ridge == "gcv" else f"{content.after.ridge:g}"
    yield f"{readers} may read the head, whose λ is {ridge}."
    yield from _explain_published(content)
    if question.noise is None:
        counts = ", how many members hold each class" if question.withhold is not None else ""
        yield f"Anyone who reaches the coordinator sees how many rows a sum holds{counts}, and how well heads fit it (errors by λ)."
    if question.withhold is not None:
        yield (
            f"A member holds a class from {question.records.least_per_class:,} rows on. "
            f"Classes that fewer than {question.class_floor:,} members hold are left out, with their rows."
        )
        yield (
            "The counts show how many members hold each class. Counts over several sets of members can show which classes one member holds, and "
            "roughly how many rows it has; a record is in the counts of at most three runs."
        )
    elif question.noise is None:
        yield "Every class is published, even one that a single member holds: this study shows rows of rare classes. The author says:"
        yield Quotation.of_text(content.notes.why_not_withheld)
    if question.noise is not None:
        yield from _explain_noise(question.noise)
        yield from _explain_unpublished(content)


def _explain_published(content: Content) -> Iterator[str]:
    publish = content.after.publish
    if publish:
        yield f"Every member may read {', '.join(publish)}."
    if content.question.noise is None and not {"pooled", "posterior"}.isdisjoint(publish):
        yield "These are or reveal the sums: every member learns the sums."


def _explain_unpublished(content: Content) -> Iterator[str]:
    counted = content.question.constant
    left = [name for name in content.after.publish if name == "pooled" or not counted]
    if left:
        yield f"Noisy sums of this kind give no {' and no '.join(left)}: these documents will say so."


def name_noise(question: Question) -> str:
    """Return in a few words how much noise the study's sums have."""
    if (noise := question.noise) is None:
        return "exact: no noise"
    return f"noisy: ε = {noise.epsilon:g} at δ = {noise.delta:g} for {_UNITS[noise.unit]}"


def _explain_noise(noise: Noise) -> Iterator[str]:
    yield (
        f"Noise limits what the whole study tells about {_UNITS[noise.unit]}: ε = {noise.epsilon:g} at δ = {noise.delta:g}, over "
        f"{len(RECIPES[noise.recipe])} {_by_number(len(RECIPES[noise.recipe]), 'step', 'steps')} ({noise.recipe})."
    )


def _explain_costs(question: Question) -> Iterator[str]:
    cost = _estimate_cost(question)
    if question.noise is None:
        yield f"A member uploads about {in_bytes(cost.upload_bytes)} and computes for {_format_seconds(cost.decryptor_cpu_ns)}."
        yield f"The coordinator stores about {in_bytes(cost.stored_bytes)} and computes for {_format_seconds(cost.coordinator_cpu_ns)}."
        yield f"Each member rounds its sums to steps of 2^-{question.scale}."
        return
    yield f"A member uploads about {in_bytes(cost.upload_bytes)} {'for the largest step' if question.steps[1:] else 'in its one step'}."
    quorum = question.smallest.quorum
    rows = question.members_min * question.records.least
    try:
        planned = plan(
            rows,
            question.width,
            len(question.classes),
            recipe=question.noise.recipe,
            shares=dict(RECIPES[question.noise.recipe]),
            epsilon=question.noise.epsilon,
            delta=question.noise.delta,
            rows_per_unit=rows_per_unit(question, question.noise),
            members=question.members_min,
            survivors_min=quorum.survivors_min,
            colluders=question.a,
        )
    except CalibrationError as error:
        yield f"No cohort can run this study: {error}."
        return
    median, least, most = planned.expected_loss()
    more = (
        "With more rows these figures stay the same" if planned.table_end == "last" else "More rows lose less"
    )
    yield (
        f"With {rows:,} rows ({question.records.least:,} of each member) in classes of one size, heads lost {median:g} points of accuracy in the "
        f"median of similar problems, and from {least:g} to {most:g} in 95 % of them. {more}; for uneven classes see `veilsum privacy`."
    )


def _estimate_cost(question: Question) -> Cost:
    members = question.members_max
    sizes = question.sizes_for(members, members)
    lost = count_dropouts(members, question.loss)
    return estimate_cost(sizes.quorum, sizes.degree, lost, question.elements, question.ring_bits)


def _explain_limits(question: Question) -> Iterator[str]:
    if question.noise is None:
        yield "The sums themselves say something about the records in them. Only noise bounds that."
    yield f"If {question.a + 1:,} or more members collude with the coordinator, they can narrow the sum down to the others, and may read single members' numbers."
    yield "If the roster names decryptors, a third of them (rounded up) and the coordinator can read every member's numbers."
    yield "A member that lies about its classes or numbers can publish a rare class or bias the head. It is not detected."
    yield "It is visible which members take part, when and for how long."
    yield "Records can't be withdrawn from a sum. No one checks that a member used this extractor."


def _by_number(count: int, one: str, many: str) -> str:
    return one if count == 1 else many


def _format_seconds(cpu_ns: int) -> str:
    return "less than a second" if cpu_ns < 10**9 else f"about {cpu_ns / 1e9:,.0f} s"
