import io
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from veilsum.demo.facts import Facts
from veilsum.demo.folder import Folder
from veilsum.demo.table import print_table


def test_the_table_fits_a_terminal_and_tells_the_run(make_facts: Callable[..., Facts]) -> None:
    printed = io.StringIO()
    print_table(make_facts(), Folder(Path("/out")), Console(file=printed, width=80))
    text = printed.getvalue()
    for word in (
        "75.0 %",
        "85.0 %",
        "70.0 %",
        "90.0 %",
        "3.2·10⁻⁸",
        "member-01",
        "2.0 KiB",
        "/out/report.html",
    ):
        assert word in text, word
    assert max(map(len, text.splitlines())) <= 80
