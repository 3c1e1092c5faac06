"""`veilsum round schedules`: what a coordinator is to open by itself, and when."""

from typing import Annotated

import typer

from veilsum.console import DEFAULT_URL, AsJson, Ca, Token, Url, clock, note, reported, say, table

app = typer.Typer(
    help="Rounds that are to be opened at a time: `veilsum round open --at` adds one.", no_args_is_help=True
)


@app.command("list")
def list_(
    cohort: Annotated[str, typer.Argument(help="The cohort's id.")],
    url: Url = DEFAULT_URL,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """Show what a cohort's rounds are scheduled for, by time, and what became of it."""
    with reported(as_json=json_):
        from veilsum.names import cohort_id
        from veilsum.remote import operator

        with operator(url, ca=ca) as client:
            found = client.schedules(cohort_id(cohort))
        if json_:
            say({"schedules": [each.model_dump(mode="json") for each in found]}, as_json=True)
        elif found:
            table(
                "Scheduled rounds",
                [
                    {
                        "schedule": each.schedule,
                        "at": clock(each.at_s),
                        "asks": each.request.statistic,
                        "tried": clock(each.begun_s),
                        "round": each.round or "–",
                        "why not": f"{each.fault.cause}: {each.fault.detail}" if each.fault else "–",
                    }
                    for each in found
                ],
            )
        else:
            note("None: `veilsum round open --at` schedules one.")


@app.command()
def cancel(
    schedule: Annotated[str, typer.Argument(help="Its id, from `veilsum round schedules list`.")],
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """Take one back that has not begun; a round that was opened is given up by `veilsum round cancel`."""
    with reported(as_json=json_):
        from veilsum.names import schedule_id
        from veilsum.remote import operator

        with operator(url, token, ca) as client:
            removed = client.unschedule(schedule_id(schedule))
        say({"removed": removed.removed}, as_json=json_, title="No longer scheduled")
