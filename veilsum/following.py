"""Enrolment and rounds, followed to their ends: a line on stderr for each change."""

from client_sdk.operator import Operator
from protocol.rest import CohortView, RoundView
from veilsum.console import clock, note
from veilsum.remote import changes
from veilsum.round_view import line


def formed(client: Operator, cohort: str) -> CohortView:
    """The cohort once enrolment has ended, well or not."""
    views = changes(lambda after: client.cohort(cohort, after))
    while (view := next(views)).state == "enrolling":
        missing = ", ".join(sorted(set(view.members) - set(view.cards)))
        note(
            f"enrolling: {len(view.cards)} of {len(view.members)} are here, waiting for {missing} "
            f"until {clock(view.deadline_s)}"
        )
    return view


def ended(client: Operator, round_id: str) -> RoundView:
    """The round at its end, or once it waits for the admin."""
    views = changes(lambda after: client.round(round_id, after))
    while not (view := next(views)).ended and view.state != "erasing":
        note(line(view))
    return view
