"""Live progress on stderr: a bar for what is under way, a line for what is done."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text


@dataclass
class Stage:
    """A stage in progress; its outcome stands in the line that replaces the bar."""

    title: str
    bar: Progress
    outcome: str = ""

    def __post_init__(self) -> None:
        self._task = self.bar.add_task(self.title, total=None, detail="")

    def update_bar(self, done: int, total: int, detail: str) -> None:
        """Show progress: `done` of `total`, and a detail."""
        self.bar.update(self._task, completed=done, total=total, detail=detail)


class Screen:
    """Progress for people, on stderr."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)

    @contextmanager
    def show_stage(self, title: str) -> Iterator[Stage]:
        """Show a bar while the block runs, then a line with its duration."""
        began = time.perf_counter()
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[detail]}", style="dim"),
            TimeElapsedColumn(),
        )
        live = self._console.is_terminal
        with Progress(*columns, console=self._console, transient=True, disable=not live) as bar:
            stage = Stage(title, bar)
            yield stage
        seconds = f"{time.perf_counter() - began:6.1f} s"
        self._console.print(
            Text.assemble(("✓ ", "green"), f"{title:<16}", (f"{seconds}  ", "dim"), stage.outcome),
            soft_wrap=True,
        )

    def print_event(self, text: str) -> None:
        """Print a line about a loss, such as a killed member."""
        self._console.print(Text.assemble(("✗ ", "red"), text), soft_wrap=True)
