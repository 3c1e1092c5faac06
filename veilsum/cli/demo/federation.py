"""A throwaway federation on this machine: every key in one folder, a coordinator and a process for each member.

It works like a real one: a signed roster and study, `veilsum member join`, and the work of `veilsum operator run`. One person holds all
keys, so it protects no data, and no real roster accepts them.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from client_sdk import Identity, Result
from client_sdk.operator import Operator
from veilsum import study
from veilsum.cli.admin import create_admin, revise_draft
from veilsum.cli.demo.coordinator import child_environment
from veilsum.cli.demo.processes import Children, DemoError
from veilsum.cli.demo.screen import Screen, Stage
from veilsum.cli.rehearsing import Rehearsed, rehearse
from veilsum.cli.running import Following, this_month
from veilsum.protocol.rest import CohortView, RoundView, StudyView, join_names
from veilsum.protocol.study import Content
from veilsum.study.progress import STAGE_TITLES

Seen = Callable[[CohortView | RoundView], None]


@dataclass
class Federation:
    """The federation, once its only study is published; its folder holds `admin/` and a folder for each member."""

    folder: Path
    children: Children
    operator: Operator
    url: str
    admin_key: bytes
    content: Content
    published: StudyView
    period: str = field(default_factory=this_month)
    _rehearsals: int = 0

    @classmethod
    def publish_federation(
        cls,
        folder: Path,
        children: Children,
        operator: Operator,
        url: str,
        members: Sequence[str],
        content: Content,
        held_out: float,
    ) -> "Federation":
        """Make all keys, sign roster and study, and publish both. Each member holds out this share of its records."""
        admin = create_admin(folder / "admin")
        identities = [Identity.create(folder / "members" / name, name, held_out=held_out) for name in members]
        draft = revise_draft(
            None,
            name="throwaway",
            coordinator=operator.coordinator().public_key,
            members=[f"{each.member}={each.public.hex()}" for each in identities],
        )
        operator.publish_roster(draft.sign_roster(admin))
        signed = study.signed.sign_study(content, admin.public, admin, time.time())
        published = operator.publish_study(signed)
        return cls(folder, children, operator, url, admin.public, content, published)

    def start_member(self, member: str, data: Path, *, once: bool = True) -> None:
        """Start `veilsum member join` as a process; with `once`, one that ends after one run, or if it can't take part."""
        home = self.folder / "members" / member
        words: list[str | Path] = ["member", "join", home, data]
        words += ["--admin-key", self.admin_key.hex(), "--url", self.url]
        words += ["--approve", self.published.approval, *(["--once"] if once else [])]
        self.children.start_child(
            member,
            "veilsum",
            *words,
            log=self.folder / "logs" / member,
            environment=child_environment(),
            folder=home,
        )

    def run_study(self, screen: Screen, seen: Seen = lambda _: None) -> RoundView:
        """Run the study as `veilsum operator run` does, with progress on the screen; `seen` hears of each change first."""
        with Stages(screen) as stages:

            def tell(view: CohortView | RoundView | str) -> None:
                if not isinstance(view, str):
                    if view.state == "erasing":  # here no member comes back
                        raise DemoError(
                            f"step {view.spec.step} did not end in time: is this machine busy? Try again"
                        )
                    seen(view)
                    stages.show_view(view)

            following = Following(
                self.operator, tell, self.children.call_watching, self.children.sleep_watching
            )
            view = following.run_study(self.admin_key.hex(), self.published, self.period)
        if view.state != "done":
            raise DemoError(
                f"the run ended {view.state}: {view.fault.detail if view.fault else 'no reason given'}"
            )
        return view

    def rehearse_study(self, screen: Screen, *, unready: Sequence[str] = ()) -> Rehearsed:
        """Run every step over canaries, as `veilsum operator rehearse` does. Raises DemoError unless all but these members are ready."""
        self._rehearsals += 1
        with screen.show_stage("Rehearsal") as stage:
            done = rehearse(
                self.operator,
                lambda _: None,
                self.admin_key.hex(),
                self.published,
                f"rehearsal-{self._rehearsals}",
                self.children.call_watching,
            )
            found = [each.member for each in done.rows if not each.ok]
            if found != [*unready] or (done.exact is not True and not unready):
                raise DemoError(" ".join(done.list_sentences()))
            ready = f"{len(done.rows) - len(found)} of {len(done.rows)} members are ready"
            stage.outcome = f"{ready}, nothing spent" if found else f"{ready}: {done.check}, nothing spent"
        return done

    def member_result(self, member: str) -> Result:
        """A member's result from its disk, verified against the admin's key."""
        kept = self.folder / "members" / member / "results" / self.content.notes.name / self.period
        result = Result.load(kept)
        result.verify(self.admin_key)
        return result


class Stages:
    """A stage of the screen for enrolment, and for each phase of each step."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._title = ""
        self._stage: Stage | None = None
        self._last: CohortView | RoundView | None = None
        self._expected = 0

    def show_view(self, view: CohortView | RoundView) -> None:
        """Show a cohort or round as it stands."""
        if isinstance(view, CohortView):
            self._enter_stage("Enrolment", len(view.members), view)
            missing = sorted(set(view.members) - set(view.cards))
            self._update_stage(len(view.cards), len(view.members), missing)
        elif not view.ended and view.state in STAGE_TITLES:
            step = {"count": "counts, ", "sum": ""}.get(view.spec.step, f"{view.spec.step}, ")
            expected = view.members if view.state == "collecting" else view.waiting_for
            self._enter_stage(f"{step}{STAGE_TITLES[view.state]}".capitalize(), len(expected), view)
            self._update_stage(
                max(0, self._expected - len(view.waiting_for)), self._expected, view.waiting_for
            )
        self._last = view

    def _enter_stage(self, title: str, expected: int, view: CohortView | RoundView) -> None:
        if title == self._title:
            return
        self._leave_stage(view)
        self._title, self._expected = title, expected
        self._context = self._screen.show_stage(title)
        self._stage = self._context.__enter__()

    def _leave_stage(self, after: CohortView | RoundView | None) -> None:
        if self._stage is not None:
            self._stage.outcome = _stage_outcome(self._last, after)
            self._context.__exit__(None, None, None)
            self._stage = None

    def _update_stage(self, done: int, total: int, waiting: Sequence[str]) -> None:
        assert self._stage is not None
        self._stage.update_bar(done, total, f"waiting for {join_names(waiting)}" if waiting else "")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._leave_stage(self._last)


def _stage_outcome(view: CohortView | RoundView | None, after: CohortView | RoundView | None) -> str:
    if isinstance(view, CohortView):
        if view.quorum is None:
            return view.state
        return (
            f"{view.quorum.members} member processes; a sum needs {view.quorum.survivors_min}, "
            f"{view.quorum.colluders} may collude with the coordinator"
        )
    if view is None:
        return ""
    match view.state:
        case "collecting":
            uploaded = after.uploaded if isinstance(after, RoundView) else view.uploaded
            return f"{len(uploaded)} of {len(view.members)} are complete; {view.survivors_min} are needed"
        case "recovered" | "done":
            return f"over {len(view.survivors)} certified survivors: masks removed, result signed"
        case _:
            return f"{view.threshold} of {len(view.members)} are enough"
