"""The demo's run: real processes, one that a rehearsal finds mistaken, and two killed on the way."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from client_sdk.operator import Operator
from veilsum.cli.demo.canaries import write_member_file
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
    Rehearsal,
    Windows,
    Withhold,
    count_rows_needed,
)
from veilsum.study.canary_check import suggest_tolerance
from veilsum.system.intervals import DEMO_FINISH_S

MEMBERS_MAX = 1_000
ROWS_MARGIN = 3


@dataclass(frozen=True)
class KilledMember:
    """A killed member process, and its last step."""

    member: str
    after: Literal["pairing", "upload"]


@dataclass(frozen=True)
class Rehearsals:
    """Members that run, and are ready.

    Attributes:
        mended: the member whose images were transposed until a rehearsal named it.
        canaries: how its canaries differed, for people.
        seconds: from the members' start until all were ready.
    """

    federation: Federation
    mended: str
    canaries: str
    seconds: float


@dataclass(frozen=True)
class DemoRun:
    """A run that ended with a result.

    Attributes:
        enrolment_s: from its start until the cohort was formed.
    """

    rehearsals: Rehearsals
    view: RoundView
    lost: tuple[KilledMember, KilledMember]
    living: tuple[str, ...]
    enrolment_s: float


def choose_casualties(learned: Learned) -> tuple[KilledMember, KilledMember]:
    """Which members to kill: the two in the middle by their number of records, the smaller one first."""
    order = np.argsort(learned.partition.sizes, kind="stable")
    smaller, larger = order[len(order) // 2 - 1 : len(order) // 2 + 1]
    return KilledMember(learned.members[smaller], "pairing"), KilledMember(learned.members[larger], "upload")


def choose_mistaken(learned: Learned) -> str:
    """Which member reads its images transposed until it is mended: the one with most records."""
    return learned.members[int(np.argmax(learned.partition.sizes))]


def demo_study(
    plan: DemoPlan, digest: bytes, dim: int, classes: int, members: int, rehearsal: Rehearsal | None = None
) -> Content:
    """The demo's study: FFC of the digits, over all members."""
    colluders = members // 4
    honest = max(colluders + 3, (members + colluders) // 2 + 1) - colluders
    elements = FFC().elements_for(dim, classes, constant=True)
    needed = max(ROWS_MIN, count_rows_needed(elements, dim + 1, dim))
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
            constant=True,
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
            windows=Windows(enrol=plan.enrol_s, upload=plan.window_s, answer=plan.window_s),
        ),
        after=After(ridge="gcv", publish=(), readers="members", ccvr=None),
        rehearsal=rehearsal,
    )


def hold_rehearsals(
    plan: DemoPlan,
    learned: Learned,
    folder: Folder,
    screen: Screen,
    children: Children,
    operator: Operator,
    url: str,
) -> Rehearsals:
    """Publish the study, start the members, rehearse, mend the member that the rehearsal names, and rehearse again."""
    dim, classes = learned.classifier.extractor.dim, learned.data.train.classes
    pack = learned.pack
    rehearsal = Rehearsal(pack=pack.digest, tolerance=suggest_tolerance(pack))
    timed = plan.lengthen_windows(learned.seconds)
    content = demo_study(timed, learned.digest, dim, classes, len(learned.members), rehearsal)
    federation = Federation.publish_federation(
        folder.root, children, operator, url, learned.members, content, 0.0
    )
    operator.publish_canaries(federation.admin_key.hex(), pack)
    began = time.perf_counter()
    mistaken = choose_mistaken(learned)
    transposed = folder.member_folder(mistaken) / "transposed.npz"
    _write_transposed(learned, mistaken, transposed)
    for member in learned.members:
        if member == mistaken:
            federation.start_member(member, transposed, once=False)
        else:
            federation.start_member(member, folder.features_file(member))
    [row] = [each for each in federation.rehearse_study(screen, unready=[mistaken]).rows if not each.ok]
    screen.print_event(f"{mistaken}: canaries differ by {row.canaries}. It reads its images again")
    children.kill_child(mistaken)
    federation.start_member(mistaken, folder.features_file(mistaken))
    federation.rehearse_study(screen)
    return Rehearsals(federation, mistaken, row.canaries, time.perf_counter() - began)


def hold_run(rehearsals: Rehearsals, learned: Learned, screen: Screen) -> DemoRun:
    """Run the study, and kill two members on the way."""
    federation, began = rehearsals.federation, time.perf_counter()
    children = federation.children
    first, second = choose_casualties(learned)
    killing = _Killing(children, screen, first, second)
    view = federation.run_study(screen, killing)
    if len(killing.dead) < 2:
        raise DemoError(f"{second.member} was not killed in time: is this machine busy? Try again")
    living = tuple(each for each in learned.members if each not in killing.dead)
    children.join_children(living, DEMO_FINISH_S)
    return DemoRun(rehearsals, view, (first, second), living, killing.formed_s - began)


def _write_transposed(learned: Learned, member: str, path: Path) -> None:
    """Write a member's features with the rows and columns of all its images exchanged."""
    rows = learned.partition.members[learned.members.index(member)]
    own = learned.data.train.subset(torch.from_numpy(rows))
    write_member_file(path, learned.classifier, own, learned.canaries, transposed=True)


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
