"""Judge heads over all members, for `veilsum operator judge`: which heads are shown, and what the judgement says."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from client_sdk.operator import Operator
from veilsum.calibration.answer import REFUSED_NOTE
from veilsum.calibration.head_file import Calibrated
from veilsum.calibration.judge import JudgeFigures, list_figures
from veilsum.cli.console import JSON_OUTPUT, print_table
from veilsum.cli.judged_report import show_interval, show_value
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.periods import PeriodKind, kind_of_period
from veilsum.protocol.record import ResultRecord
from veilsum.protocol.rest import StudyView
from veilsum.protocol.round_spec import RoundSpec
from veilsum.protocol.study import Content, Question, read_content
from veilsum.study.judgement import TABLES_DOCUMENT, judge_tables, read_tables
from veilsum.study.judging import encode_shown, judge_of, read_shown, show_heads
from veilsum.study.result_files import calibrated_in, document_in


@dataclass(frozen=True)
class NamedHead:
    """A head and what to call it."""

    name: str
    calibrated: Calibrated


def read_study_content(client: Operator, federation: str, study: StudyView) -> Content:
    """Fetch a study's content. Raises Misuse if it has no judge."""
    content = read_content(client.study(federation, study.study).content)
    judge_of(content.question)
    return content


def read_heads(paths: Sequence[Path]) -> list[NamedHead]:
    """Read heads from files that `join` or the coordinator saved. Raises Misuse if a file holds none."""
    found = list[NamedHead]()
    for path in paths:
        try:
            found.append(NamedHead(path.name, calibrated_in(path.read_bytes())))
        except (OSError, PeerFault) as error:
            why = error.detail if isinstance(error, PeerFault) else error  # no party is at fault
            raise Misuse(
                f"{path} holds no head: {why}; pass weights.safetensors of a saved result"
            ) from error
    return found


def find_heads(client: Operator, federation: str, study: StudyView, question: Question) -> list[NamedHead]:
    """Find the heads of the study's newest result: its own, then further ones that it published, as many as the judge takes.

    Raises:
        Misuse: the study has no result with a head.
    """
    for round_id in reversed(client.federation(federation).rounds):
        view = client.round(round_id)
        is_data = kind_of_period(view.spec.period) is PeriodKind.DATA
        if view.state != "done" or view.spec.name != study.name or not is_data:
            continue
        record = client.result(round_id)
        if record.head is not None:
            return [*_published_heads(client, record, question)][: judge_of(question).heads]
    raise Misuse(f"study {study.name} has no head yet: run it first, or pass --head FILE")


def _published_heads(client: Operator, record: ResultRecord, question: Question) -> Iterator[NamedHead]:
    silent = tuple(sorted({*record.withheld, *record.solution.empty_classes}))
    first = calibrated_in(client.weights(record.round)).without(silent)
    yield NamedHead(f"the head of {record.period}", first)
    known = {*(each.kind for each in question.statistics[1:]), "lda", "ncm"}
    for name in (view.name for view in record.documents if view.name in known):
        content = client.document(record.round, name)
        if REFUSED_NOTE not in document_in(content).notes:
            yield NamedHead(f"{name} of {record.period}", calibrated_in(content).without(silent))


def encode_heads(question: Question, heads: Sequence[NamedHead]) -> bytes:
    """Encode the heads that a judgement shows. Raises Misuse if they are not the study's, or too many."""
    return encode_shown(question, show_heads(question, [each.calibrated for each in heads]))


def read_figures(client: Operator, round_id: str, content: Content) -> JudgeFigures:
    """Fetch a judgement's tables, and state what they say."""
    record, opening = client.result(round_id), client.opening(round_id)
    spec = RoundSpec.of(content, client.manifest(record.cohort), opening.terms)
    tables = read_tables(content.question, {TABLES_DOCUMENT: client.document(round_id, TABLES_DOCUMENT)})
    summed = len(record.survivors) - len(record.evicted)
    return judge_tables(spec, tables, summed, read_shown(content.question, client.material(round_id)))


def check_shown(client: Operator, round_id: str, shown: bytes) -> None:
    """Refuse a judgement that was held before, over other heads than these (Misuse)."""
    opening = client.opening(round_id)
    if opening.terms.material != hashlib.sha256(shown).digest():
        period = client.round(round_id).spec.period
        raise Misuse(
            f"period {period} already judged other heads, in round {round_id} (`veilsum operator round result {round_id}` shows them). "
            "Judge these in another period: --period judge-NAME"
        )


def print_drift(client: Operator, federation: str, study: StudyView, content: Content) -> None:
    """Report the study's judgements, oldest first, if there are several."""
    rows = list[dict[str, str]]()
    for round_id in client.federation(federation).rounds:
        view = client.round(round_id)
        is_judged = kind_of_period(view.spec.period) is PeriodKind.JUDGE
        if view.state != "done" or view.spec.name != study.name or not is_judged:
            continue
        if client.result(round_id).study != study.study:
            continue
        listed = dict(list_figures(read_figures(client, round_id, content), content.question.classes))
        shown = {
            name: listed[name]
            for name in ("accuracy", "accuracy at equal class shares", "AUROC")
            if name in listed
        }
        rows.append(
            {"period": view.spec.period}
            | {
                name: f"{show_value(name, each)} ({show_interval(name, each)})" if each.is_stated else "–"
                for name, each in shown.items()
            }
        )
    if len(rows) > 1 and not JSON_OUTPUT.get():
        print_table("All judgements of this study, of any heads", rows)
