"""The demo's run: real processes, two of them killed on the way."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from veilsum.cli.demo.coordinator import running_coordinator
from veilsum.cli.demo.federation import Federation
from veilsum.cli.demo.folder import Folder
from veilsum.cli.demo.learning import Learned
from veilsum.cli.demo.plan import DemoPlan
from veilsum.cli.demo.processes import Children, DemoError
from veilsum.cli.demo.screen import Screen
from veilsum.protocol.rest import CohortView, RoundView
from veilsum.protocol.statistics import FFC
from veilsum.protocol.study import (
    DAY_S,
    ROWS_MIN,
    After,
    Content,
    Notes,
    Question,
    RecordRules,
    Windows,
    Withhold,
    count_rows_needed,
)
from veilsum.system.intervals import DEMO_FINISH_S

MEMBERS_MAX = 1_000
ROWS_MARGIN = 3


@dataclass(frozen=True)
class KilledMember:
    """A killed member process, and its last step."""

    member: str
    after: Literal["pairing", "upload"]


@dataclass(frozen=True)
class DemoRun:
    """A run that ended with a result.

    Attributes:
        enrolment_s: from the members' start until the cohort was formed.
    """

    federation: Federation
    view: RoundView
    lost: tuple[KilledMember, KilledMember]
    living: tuple[str, ...]
    enrolment_s: float


def choose_casualties(learned: Learned) -> tuple[KilledMember, KilledMember]:
    """Which members to kill: the two in the middle by their number of records, the smaller one first."""
    order = np.argsort(learned.partition.sizes, kind="stable")
    smaller, larger = order[len(order) // 2 - 1 : len(order) // 2 + 1]
    return KilledMember(learned.members[smaller], "pairing"), KilledMember(learned.members[larger], "upload")


def demo_study(plan: DemoPlan, digest: bytes, dim: int, classes: int, members: int) -> Content:
    """The demo's study: FFC of the digits, over all members."""
    colluders = members // 4
    honest = max(colluders + 3, (members + colluders) // 2 + 1) - colluders
    elements = FFC().elements_for(dim, classes, constant=plan.constant)
    needed = max(ROWS_MIN, count_rows_needed(elements, dim + plan.constant, dim))
    return Content(
        notes=Notes(
            name="digits",
            version=1,
            purpose="veilsum demo",
            why_not_listable="These digits are public already: a demo has nothing to hide.",
            why_not_withheld="" if plan.withhold else "These digits are public already.",
            display=(),
            expires=int(time.time()) + DAY_S,
        ),
        question=Question(
            extractor=digest.hex(),
            dim=dim,
            classes=tuple(map(str, range(classes))),
            columns=(),
            constant=plan.constant,
            listable=False,
            statistics=(FFC(),),
            ring_bits=48,
            records=RecordRules(
                least=-(-needed // honest), most=MEMBERS_MAX, least_per_class=5, rows_per_id=1
            ),
            members_min=members,
            members_max=members,
            a=colluders,
            h_min=3,
            loss=100,
            withhold=Withhold(margin=ROWS_MARGIN) if plan.withhold else None,
            noise=None,
            judge=None,
            windows=Windows(enrol=plan.enrol_s, upload=plan.upload_s, answer=plan.answer_s),
        ),
        after=After(ridge="gcv", publish=(), readers="members", ccvr=None),
        rehearsal=None,
    )


def hold_run(plan: DemoPlan, learned: Learned, folder: Folder, screen: Screen, children: Children) -> DemoRun:
    """Start coordinator and members, kill two of them, and follow the run to its result."""
    first, second = choose_casualties(learned)
    dim, classes = learned.classifier.extractor.dim, learned.data.train.classes
    content = demo_study(plan, learned.digest, dim, classes, len(learned.members))
    with running_coordinator(children, folder, screen) as (operator, url):
        federation = Federation.publish_federation(
            folder.root, children, operator, url, learned.members, content, 0.0
        )
        began = time.perf_counter()
        for member in learned.members:
            federation.start_member(member, folder.features_file(member))
        killing = _Killing(children, screen, first, second)
        view = federation.run_study(screen, killing)
        if len(killing.dead) < 2:
            raise DemoError(f"{second.member} was not killed in time: is this machine busy? Try again")
        living = tuple(each for each in learned.members if each not in killing.dead)
        children.join_children(living, DEMO_FINISH_S)
    return DemoRun(federation, view, (first, second), living, killing.formed_s - began)


class _Killing:
    """Kills one member after enrolment, and one once its upload to the sum is complete."""

    def __init__(self, children: Children, screen: Screen, first: KilledMember, second: KilledMember) -> None:
        self.children, self.screen, self.first, self.second = children, screen, first, second
        self.dead: Sequence[str] = ()
        self.formed_s = 0.0

    def __call__(self, view: CohortView | RoundView) -> None:
        if isinstance(view, CohortView):
            if view.state == "formed" and not self.dead:
                self.formed_s = time.perf_counter()
                self._kill_member(self.first)
        elif (
            view.spec.step == "sum"
            and view.state == "collecting"
            and self.second.member in view.uploaded
            and self.second.member not in self.dead
        ):
            self._kill_member(self.second)

    def _kill_member(self, lost: KilledMember) -> None:
        self.children.kill_child(lost.member)
        self.dead = (*self.dead, lost.member)
        self.screen.print_event(f"{lost.member} killed (SIGKILL) after its {lost.after}")
