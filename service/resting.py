"""From an operator's request to a layout: what an earlier round told comes in as material (protocol §4.8)."""

import hashlib

import numpy as np
from safetensors.numpy import load, save

from calibration import CalibrationError, Layout
from calibration.questions import MATERIAL, RESTS_ON, Earlier, Wish, ask
from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.rest import RoundRequest
from service.asked import SUMS, WEIGHTS, asked_question, head_in, summed_of
from service.rounds import Round
from service.storage.blobs import Blobs


def layout_of(
    request: RoundRequest, before: Round | None, federation: str, blobs: Blobs
) -> tuple[Layout, bytes | None]:
    """The layout that a request comes to, and the material whose digest it holds, if there is any.

    Args:
        request: of the round.
        before: the round that it rests on, if it names one.
        federation: whose round it is.
        blobs: where sums come from.

    Raises:
        PeerFault: terms-refused, where the question is none, or takes other parameters or another round before; wrong-phase where
            that round is not done.
    """
    assert request.dim is not None
    try:
        wish = Wish(request.dim, request.classes, request.parameters, noisy=request.noise is not None)
        earlier = None if before is None else _earlier(before, request, federation, blobs)
        asked = ask(request.question, wish, earlier)
        layout = asked.layout.having(**{RESTS_ON: before.attempt.context.hex() if before else None})
    except CalibrationError as error:
        raise PeerFault(Cause.TERMS_REFUSED, str(error)) from error
    if not asked.material:
        return layout, None
    content = save({name: np.ascontiguousarray(array) for name, array in sorted(asked.material.items())})
    return layout.having(**{MATERIAL: hashlib.sha256(content).hexdigest()}), content


def _earlier(before: Round, request: RoundRequest, federation: str, blobs: Blobs) -> Earlier:
    """What a finished round can tell the next one."""
    record, terms = before.documents.result(), before.attempt.opening.terms
    if record.federation != federation or record.extractor != request.extractor:
        raise PeerFault(
            Cause.TERMS_REFUSED,
            f"round {before.id} is of another federation or extractor: nothing can rest on it",
        )
    if record.noise == "none" and request.noise is not None:
        raise PeerFault(
            Cause.TERMS_REFUSED,
            f"round {before.id} is exact: what a noisy one tells of its sum would have no noise; rest on a noisy round, or ask for an exact one",
        )
    asked = asked_question(before.attempt, blobs)
    summed = summed_of(before.attempt, len(record.survivors) - len(record.evicted))
    gathering = asked.gathering(summed.lattice)
    gathering.take(0, load(before.documents.document(SUMS))["sum"])
    head = None
    if record.weights_sha256 is not None:
        head = head_in(before.documents.document(WEIGHTS)).head
    return Earlier(terms.statistic, asked.gathered(gathering, summed), head)
