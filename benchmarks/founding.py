"""Shared by benchmarks: a federation at a coordinator, with its study and its members' keys."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from client_sdk import Identity, Policy, Records
from client_sdk.operator import Operator
from tests.support.simulator import simulated_content, simulated_question
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import Entry, Roster, Study
from veilsum.protocol.study import DAY_S, Question, as_tuples


@dataclass(frozen=True)
class Founded:
    """A federation with a published study.

    Attributes:
        federation: its id.
        study: the study's hash.
        question: the study's question.
        policy: of the members, who approve the study.
    """

    federation: str
    study: str
    question: Question
    policy: Policy

    def open_cohort(self, operator: Operator, period: str = "period-0") -> str:
        """Open a cohort for the study's run of this period; return its id."""
        return operator.open_cohort(self.federation, self.study, period).cohort


def question_of(members: int, dim: int, classes: int, ring_bits: int = 48, **changes: Any) -> dict[str, Any]:
    """Make a question for exactly this many members, with the fewest rows that the rules allow.

    If it withholds rare classes, a member that has these rows, equally of all classes, holds each class.
    """
    question = {
        **simulated_question(members),
        "dim": dim,
        "classes": [f"class-{label}" for label in range(classes)],
        "ring_bits": ring_bits,
        "members_min": members,
        **changes,
    }
    asked = Question.model_validate(as_tuples(question))
    least, each = -(-asked.rows_needed // (asked.smallest.quorum.survivors_min - asked.a)), 1
    if asked.withhold is not None:
        each = -(-asked.class_rows_needed // (members - asked.a - asked.withhold.margin))
        least = max(least, each * classes)
    records = {"least": least, "most": least, "least_per_class": each, "rows_per_id": 1}
    return {**question, "records": records, **changes}


def found(operator: Operator, folder: Path, ids: Sequence[str], question: dict[str, Any]) -> Founded:
    """Create the members' identities below a folder, and publish a roster and a study."""
    admin = SigningKey(os.urandom(32))
    keys = {member: Identity.create(folder / member, member, held_out=0.0).public for member in sorted(ids)}
    roster = Roster.make_signed(
        admin,
        number=1,
        name="benchmark",
        federation=admin.public,
        coordinator=bytes.fromhex(operator.coordinator().public_key),
        study_key=admin.public,
        members=tuple(Entry(member, key) for member, key in keys.items()),
        decryptors=(),
        readers=(),
        revoked=(),
    )
    operator.publish_roster(roster)
    content = simulated_content(question, int(time.time()) + 80 * DAY_S)
    study = Study.make_signed(admin, federation=admin.public, content=content.to_bytes())
    operator.publish_study(study)
    policy = Policy(admin.public, approved={content.approval})
    return Founded(admin.public.hex(), study.hash.hex(), content.question, policy)


def random_records(question: Question, seed: int) -> Records:
    """Make as many rows as a member needs."""
    rng, rows = np.random.default_rng(seed), question.records.least
    features = rng.standard_normal((rows, question.dim), np.float32)
    return Records(features, rng.integers(len(question.classes), size=rows))
