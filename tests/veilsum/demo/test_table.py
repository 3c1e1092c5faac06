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
    squeezed = " ".join(text.replace("│", " ").split())
    for word in (
        "FedAvg, trained head 75.0 %",
        "FedAvg, plain FFC 85.0 %",
        "SphereFed, fixed head 70.0 %",
        "SphereFed, masked FFC 90.0 %",
        "its accuracy before calibration is not the number",
        "3.2·10⁻⁸ of max|W|, both with λ = 0.1",
        "lost: member-01",
        "killed after its upload: still in the sum",
        "2.0 KiB for 100 masked numbers",
        "no differential privacy noise",
        "/out/report.html",
    ):
        assert word in text or word in squeezed, word
    assert max(map(len, text.splitlines())) <= 80
