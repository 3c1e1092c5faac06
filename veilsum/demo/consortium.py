"""A round between real processes, two of which are killed on the way."""

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from client_sdk import Identity
from client_sdk.operator import Operator
from protocol.rest import CohortRequest, CohortView, RoundRequest, RoundView, WindowsModel
from veilsum.admin import Draft, create_admin
from veilsum.console import clock
from veilsum.demo.coordinator import Address, start_coordinator, surroundings
from veilsum.demo.errors import DemoError
from veilsum.demo.folder import Folder
from veilsum.demo.learning import Learned
from veilsum.demo.plan import Plan
from veilsum.demo.processes import Children
from veilsum.demo.screen import Screen, Stage
from veilsum.opening import open_in_turn

LINEAGE = "digits-demo"
RECORDS_CAP = 4096
FINISH_S = 60.0
_TITLES = {"collecting": "Uploads", "checking": "Receipts", "freezing": "Votes", "revealing": "Shares"}


@dataclass(frozen=True)
class Lost:
    """A member whose process was killed, and the last thing it had done for the round."""

    member: str
    after: Literal["card", "upload"]


@dataclass(frozen=True)
class Held:
    """A round that ended with a result.

    Attributes:
        admin_key: the federation's name, as every member pinned it.
        view: the round at its end.
        lost: in the order of their deaths.
        reports: what each living member's command printed.
        enrolment_s: from the members' start until the cohort was formed.
    """

    admin_key: bytes
    view: RoundView
    lost: tuple[Lost, ...]
    reports: Mapping[str, Mapping[str, Any]]
    enrolment_s: float


def casualties(learned: Learned) -> tuple[Lost, Lost]:
    """Whom to kill: the two members in the middle by their number of records, the smaller one first."""
    order = np.argsort(learned.partition.sizes, kind="stable")
    smaller, larger = order[len(order) // 2 - 1 : len(order) // 2 + 1]
    return Lost(learned.members[smaller], "card"), Lost(learned.members[larger], "upload")


def hold_round(plan: Plan, learned: Learned, folder: Folder, screen: Screen) -> Held:
    """Start coordinator and members, kill two of them, and follow the round to its end.

    Raises:
        DemoError: a process failed, or the round ended without a result.
    """
    os.environ.update({name: surroundings()[name] for name in ("NO_PROXY", "no_proxy")})
    with Children() as children:
        with screen.stage("Coordinator") as stage:
            address = start_coordinator(children, folder.coordinator)
            stage.outcome = f"answers at {address.url}"
        with Operator(address.url, address.token, patience_s=5.0) as operator:
            return _Consortium(plan, learned, folder, screen, children, operator, address).hold()


@dataclass
class _Consortium:
    plan: Plan
    learned: Learned
    folder: Folder
    screen: Screen
    children: Children
    operator: Operator
    address: Address

    def hold(self) -> Held:
        first, second = casualties(self.learned)
        admin_key = self.publish()
        request = CohortRequest(records_cap=RECORDS_CAP, enrol_s=600.0)
        cohort = self.operator.open_cohort(admin_key.hex(), request)
        began = time.perf_counter()
        self.start_members(admin_key, cohort)
        cohort = self.formed(cohort)
        enrolment_s = time.perf_counter() - began
        self.kill(first)
        view = self.opened(cohort, self.terms(enrolment_s))
        view = self.ended(view, second)
        living = [member for member in self.learned.members if member not in {first.member, second.member}]
        self.children.join(living, FINISH_S)
        reports = {member: json.loads(self.printed(member).read_bytes()) for member in living}
        return Held(admin_key, view, (first, second), reports, enrolment_s)

    def publish(self) -> bytes:
        """Make the admin's key, the members' identities and the roster; the admin's public key."""
        admin = create_admin(self.folder.admin)
        members = {
            member: Identity.create(self.folder.member(member), member).public.hex()
            for member in self.learned.members
        }
        coordinator = self.operator.coordinator().public_key
        draft = Draft(
            version=1,
            coordinator=coordinator,
            members=members,
            extractors=[self.learned.digest.hex()],
            withhold=self.plan.withhold,  # otherwise a digit that one member alone holds shows; the result says so
        )
        self.operator.publish(draft.sign(admin))
        return admin.public

    def start_members(self, admin_key: bytes, cohort: CohortView) -> None:
        for member in self.learned.members:
            home = self.folder.member(member)
            options: list[str | Path] = ["--url", self.address.url, "--admin-key", admin_key.hex()]
            options += ["--cohort", cohort.cohort, "--features", self.folder.features(member)]
            options += ["--lineage", LINEAGE, "--output", home / "result", "--json"]
            self.children.start(
                member,
                [sys.executable, "-m", "veilsum", "member", "join", home, *options],
                log=home / "log",
                output=self.printed(member),
                environment=surroundings(),
                folder=home,
            )

    def formed(self, view: CohortView) -> CohortView:
        """The cohort, once every member's card is in."""
        with self.screen.stage("Enrolment") as stage:
            while view.state == "enrolling":
                missing = tuple(sorted(set(view.members) - set(view.cards)))
                stage.update(len(view.cards), len(view.members), _waiting(missing, view.deadline_s))
                view = self.children.during(partial(self.operator.cohort, view.cohort, view.version))
            if view.quorum is None:
                raise DemoError(
                    f"the cohort {view.state}: {view.fault.detail if view.fault else 'no reason given'}"
                )
            stage.outcome = (
                f"{view.quorum.members} member processes; {view.quorum.survivors_min} must stay for a sum, "
                f"{view.quorum.colluders} may collude with the coordinator"
            )
        return view

    def opened(self, cohort: CohortView, terms: RoundRequest) -> RoundView:
        """The round; where rare classes are withheld, after their holders were counted."""
        if not self.plan.withhold:
            return self.operator.open_round(cohort.cohort, terms)
        with self.screen.stage("Counts") as stage:

            def tell(seen: RoundView) -> None:
                _show(stage, seen, len(seen.members))
                self.children.during(lambda: None)  # a member that failed ends the wait

            view = open_in_turn(self.operator, cohort.cohort, terms, tell=tell)
            if view.ended or view.terms is None:
                raise DemoError(
                    f"counting ended {view.state}: {view.fault.detail if view.fault else 'no reason given'}"
                )
            stage.outcome = (
                f"members counted how many hold each digit; withheld: {_digits(view.terms.withheld)}"
            )
        return view

    def terms(self, enrolment_s: float) -> RoundRequest:
        plan = self.plan
        return RoundRequest(
            dim=self.learned.classifier.extractor.dim,
            classes=self.learned.data.train.classes,
            bias=plan.bias,
            ring_bits=plan.ring_bits,
            extractor=self.learned.digest.hex(),
            windows=WindowsModel(
                upload_s=max(plan.upload_min_s, enrolment_s),
                check_s=plan.answer_s,
                freeze_s=plan.answer_s,
                grace_s=plan.grace_s,
            ),
        )

    def ended(self, view: RoundView, victim: Lost) -> RoundView:
        """Follow the round to its result, and kill the victim once its upload is whole."""
        alive = True
        while not view.ended and view.state != "erasing":  # nobody comes back here
            state, expected = view.state, len(view.waiting_for)
            with self.screen.stage(_TITLES.get(state, "Sum")) as stage:
                while view.state == state and not view.ended:
                    _show(stage, view, expected)
                    if alive and state == "collecting" and victim.member in view.uploaded:
                        self.kill(victim)
                        alive = False
                    seen = view
                    view = self.children.during(partial(self.operator.round, seen.round, seen.version))
                stage.outcome = _outcome(seen, view, expected)
            if alive:
                raise DemoError(
                    f"{victim.member}'s upload was not whole when the window closed: is this machine busy? Try again"
                )
        if view.state != "done":
            raise DemoError(
                f"the round ended {view.state}: {view.fault.detail if view.fault else 'no reason given'}"
            )
        return view

    def kill(self, lost: Lost) -> None:
        self.children.kill(lost.member)
        self.screen.event(f"{lost.member} killed (SIGKILL) after its {lost.after}")

    def printed(self, member: str) -> Path:
        return self.folder.member(member) / "printed.json"


def _digits(classes: tuple[int, ...]) -> str:
    return ", ".join(map(str, classes)) or "none"


def _show(stage: Stage, view: RoundView, expected: int) -> None:
    stage.update(
        max(0, expected - len(view.waiting_for)), expected, _waiting(view.waiting_for, view.deadline_s)
    )


def _waiting(members: tuple[str, ...], until_s: float | None) -> str:
    names = ", ".join(members[:3]) + (f" and {len(members) - 3} more" if len(members) > 3 else "")
    return f"waiting for {names} until {clock(until_s)}" if members else ""


def _outcome(last: RoundView, after: RoundView, expected: int) -> str:
    if last.state == "collecting":
        survivors = len(after.uploaded)
        return f"{survivors} of {len(after.members)} are whole; {after.survivors_min} are needed"
    if expected:
        return f"{after.threshold} of {len(after.members)} are enough"
    return f"over {len(after.survivors)} certified survivors, masks off, head solved and signed"
