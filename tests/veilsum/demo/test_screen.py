import io

import pytest
from rich.console import Console

from veilsum.demo.screen import Screen


@pytest.mark.parametrize("terminal", [False, True])
def test_a_stage_leaves_a_line(*, terminal: bool) -> None:
    printed = io.StringIO()
    screen = Screen(Console(file=printed, force_terminal=terminal, width=120))
    with screen.stage("Uploads") as stage:
        stage.update(1, 2, "waiting for member-02")
        screen.event("member-01 killed")
        stage.outcome = "2 of 2"
    lines = [line for line in printed.getvalue().splitlines() if "member-01 killed" in line or "✓" in line]
    assert "✗" in lines[0]
    assert "Uploads" in lines[1]
    assert lines[1].endswith("2 of 2")


def test_a_stage_that_fails_is_not_said_to_be_done() -> None:
    printed = io.StringIO()
    screen = Screen(Console(file=printed, width=120))
    with pytest.raises(ValueError, match="no"), screen.stage("Uploads"):
        raise ValueError("no")
    assert "✓" not in printed.getvalue()
