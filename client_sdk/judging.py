"""How right a result's head is on this member's hold-out records, beside a head of its own contribution. Nothing is sent."""

import numpy as np

from client_sdk.records import Marks, Records, unsummed
from client_sdk.reservations import State
from client_sdk.result import Result
from client_sdk.session import Session
from veilsum.calibration.errors import CalibrationError
from veilsum.calibration.head import Head
from veilsum.study.alone import alone


def judge(session: Session, result: Result, records: Records, held_out: Records | None) -> Result:
    """Arguments, outcome and errors as `Member.judge`."""
    if result.head_file is None:
        return result
    ledger, question, after = session.store.ledger, result.spec.question, result.content.after
    records.check_dim(question.dim)
    run = ledger.run(question.digest, result.record.period)
    own: Head | None = None
    ranks = np.zeros((0, 32), np.uint8)
    if run is not None and run.state is not State.DECLINED:
        features, labels, ranks = ledger.rows(run)
        ridge = after.ridge
        try:
            own = alone(
                question.dim,
                len(question.classes),
                question.statistics[0],
                [(features, labels)],
                normalise=True,
                ridge=ridge,
                ccvr=after.ccvr,
            ).answer.head
        except CalibrationError:  # too few rows of its own for any head
            own = None
    if held_out is None:
        marks = Marks(ledger.secret, session.policy.federation)
        held_out = Records(*unsummed(records, question.classes, marks, ranks))
    if not len(held_out):
        return result
    return result.judge(held_out, own)
