"""How right a result's head is on this member's hold-out records, beside a head of its own contribution. Nothing is sent."""

import numpy as np

from client_sdk.records import Marks, Records, unsummed
from client_sdk.reservations import State
from client_sdk.result import Result
from client_sdk.session import Session
from veilsum.calibration.errors import CalibrationError
from veilsum.calibration.head import Head
from veilsum.study.answers import alone


def judge(session: Session, result: Result, records: Records, held_out: Records | None) -> Result:
    """Arguments, outcome and errors as `Member.judge`."""
    if result.head_file is None:
        return result
    ledger, question, after = session.store.ledger, result.spec.question, result.content.after
    records.check_dim(question.dim)
    run = ledger.run(question.digest, result.record.period)
    rows = None if run is None or run.state is State.DECLINED else ledger.rows(run)
    if held_out is None:
        summed = np.zeros((0, 32), np.uint8) if rows is None else rows[2]
        marks = Marks(ledger.secret, session.policy.federation)
        held_out = Records(*unsummed(records, question.classes, marks, summed))
    if not len(held_out):
        return result
    own: Head | None = None
    if rows is not None:
        try:
            own = alone(
                question.dim,
                len(question.classes),
                question.statistics[0],
                [rows[:2]],
                normalise=True,
                ridge=after.ridge,
                ccvr=after.ccvr,
            ).answer.head
        except CalibrationError:  # too few rows of its own for any head
            own = None
    return result.judge(held_out, own)
