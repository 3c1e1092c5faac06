"""The result of a judgement: the tables that its sum holds, and what they say (periods: Judgements)."""

from collections.abc import Mapping

import numpy as np

from veilsum.calibration.answer import Answer, Document
from veilsum.calibration.judge import JudgedTables, JudgeFigures
from veilsum.calibration.judge_tables import JOINT, JUDGE_LATTICE, ShownHeads
from veilsum.calibration.rows import Floats, Integers
from veilsum.protocol.record import mismatch_fault
from veilsum.protocol.round_spec import RoundSpec
from veilsum.protocol.study import Question
from veilsum.study.judging import judge_mechanism, table_shapes
from veilsum.study.result_files import document_in

TABLES_DOCUMENT = "tables"
"""The document of a judgement's record: its tables in records, with their noise."""


def judge_answer(question: Question, total: Integers) -> Answer:
    """Return the tables of a judgement's sum, (elements,) int64, as a document, and about how many rows were judged."""
    tables = _read_tables(question, total)
    return Answer(
        max(0, round(float(tables[JOINT].sum()))), None, documents={TABLES_DOCUMENT: Document(tables)}
    )


def check_tables(question: Question, total: Integers, files: Mapping[str, bytes]) -> None:
    """Refuse a judgement whose tables are not those of its sum, (elements,) int64 (result-mismatch)."""
    shapes = table_shapes(question)
    if total.shape != (shapes.elements,) or total.dtype != np.int64:
        raise mismatch_fault(
            f"the sums are {total.dtype}{total.shape}, the step has int64({shapes.elements},)"
        )
    seen, expected = read_tables(question, files), _read_tables(question, total)
    if any(not np.array_equal(seen[name], expected[name]) for name in expected):
        raise mismatch_fault("the tables do not follow from the sums")


def read_tables(question: Question, files: Mapping[str, bytes]) -> Mapping[str, Floats]:
    """Return the tables of a judgement's documents. Raises PeerFault(result-mismatch) if they are missing, or not the study's."""
    if [*files] != [TABLES_DOCUMENT]:
        raise mismatch_fault(
            f"a judgement publishes {TABLES_DOCUMENT} alone, not {', '.join(files) or 'nothing'}"
        )
    tables = document_in(files[TABLES_DOCUMENT]).arrays
    wanted = {block.name: block.shape for block in table_shapes(question).release.layout.blocks}
    if {name: table.shape for name, table in tables.items()} != wanted or any(
        table.dtype != np.float64 or not np.isfinite(table).all() for table in tables.values()
    ):
        raise mismatch_fault(f"the tables are not float64 of the shapes {wanted}")
    return tables


def judge_tables(
    spec: RoundSpec, tables: Mapping[str, Floats], members: int, shown: ShownHeads
) -> JudgeFigures:
    """State what the tables of a judgement say about the heads shown; `members` vectors are in its sum."""
    mechanism = judge_mechanism(spec.question, spec.members, spec.survivors_min)
    variance = members * mechanism.largest / JUDGE_LATTICE.unit(2)
    counted = JudgedTables(
        table_shapes(spec.question), tables, variance, float(spec.question.records.rows_per_id)
    )
    return counted.judge(
        len(shown.heads),
        empty_classes=shown.heads[0].empty_classes,
        temperature=shown.temperature,
        edges=shown.edges,
    )


def _read_tables(question: Question, total: Integers) -> dict[str, Floats]:
    counts = JUDGE_LATTICE.decode(total, 1)
    return dict(table_shapes(question).release.layout.unflatten(counts))
