"""A federation whose members may lie in their vectors."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from client_sdk import upload
from client_sdk.reservations import Reservations, Run
from client_sdk.session import Session
from tests.support.consortium import Consortium
from tests.support.serving import Stage
from veilsum.protocol.round_spec import RoundSpec


@contextmanager
def founded(stage: Stage, folder: Path, members: int = 5, **question: Any) -> Iterator[Consortium]:
    """Found a federation. The vectors that its members mask are recorded, and colluders may change theirs."""
    made, lies = Consortium(stage, folder, members, question=question), list[Any]()
    honest, keep = upload.own_vector, Reservations.keep_vector

    def own_vector(session: Session, run: Run, spec: RoundSpec, material: Any) -> Any:
        own = honest(session, run, spec, material)
        if session.policy.federation == made.admin.public:
            told = made.lie(session.member, spec, own)
            lies.extend([told] if told is not own else [])
            made.vectors.setdefault((session.member, spec.period, spec.step), []).append(told)
            return told
        return own

    def keep_vector(ledger: Reservations, run: Run, name: str | None, vector: Any) -> bytes:
        """Store a liar's vector without its name, so that the liar may send another one the next time."""
        return keep(ledger, run, None if any(vector is each for each in lies) else name, vector)

    with pytest.MonkeyPatch.context() as patched, made.operator:
        patched.setattr(upload, "own_vector", own_vector)
        patched.setattr(Reservations, "keep_vector", keep_vector)
        yield made
