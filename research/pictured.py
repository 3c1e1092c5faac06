"""Draw analysed runs as a page of the documentation; `make pictures` trains two methods for it."""

import argparse
import base64
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from research.report.cells import HEADS, Cell, cells
from research.report.groups import Group, groups
from research.report.markdown import table
from research.report.pictures import Picture, pictures
from research.results import read_results

_IMAGE = re.compile(r"data:image/([a-z]+)(?:\+xml)?;base64,(.*)", re.DOTALL)
_HEADING = """# Runs in pictures

Written by `make pictures` from two runs of `python -m research.analyse --variant small` on CCVR's row (CIFAR-10 as JPEG, 10,000 records, 20 rounds of 2 epochs, one seed). `python -m research.report` draws the same of any result files;
[training.md](../docs/training.md#analyses) says what each is and where it comes from. One seed shows what a picture looks like, not which method is better: for that see [reproduction.md](reproduction.md)."""


def page(found: Sequence[Cell], folder: Path) -> Iterator[str]:
    """Yield the page's paragraphs, and write its pictures into `folder`."""
    yield _HEADING
    for group in groups(found):
        yield f"## {group.where}"
        yield _accuracies(group)
        for number, picture in enumerate(pictures(group.cells), 1):
            name = _written(picture, folder, number)
            heading = picture.alternative.partition(";")[0].rstrip(".")
            yield f"### {heading}\n\n![{picture.alternative}](pictures/{folder.name}/{name})\n\n{picture.caption}"


def _accuracies(group: Group) -> str:
    rows = [
        [cell.first.method]
        + [f"{cell.measured(head).mean:.1f}" if head in cell.heads else "–" for head in group.heads]
        for cell in group.cells
    ]
    return table(["method", *(HEADS.get(head, head) for head in group.heads)], rows)


def _written(picture: Picture, folder: Path, number: int) -> str:
    form = _IMAGE.fullmatch(picture.image)
    assert form is not None, picture.image[:40]
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{number:02}.{form[1]}"
    (folder / name).write_bytes(base64.b64decode(form[2]))
    return name


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "results", type=Path, nargs="+", help="result files of analysed runs, or their folders"
    )
    parser.add_argument("--page", type=Path, required=True)
    chosen = parser.parse_args()
    folder = chosen.page.parent / "pictures" / chosen.page.stem
    shutil.rmtree(folder, ignore_errors=True)
    found = cells(read_results(chosen.results))
    chosen.page.write_text("\n\n".join(page(found, folder)) + "\n")


if __name__ == "__main__":
    main()
