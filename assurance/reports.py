"""Options and reports of campaigns."""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def arguments(about: str | None) -> argparse.ArgumentParser:
    """Return a campaign's options: where to write its report, and what is added."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--output", type=Path, help="where to write the report")
    return parser


def report(found: Mapping[str, Any], output: Path | None, *, sound: bool) -> None:
    """Print the findings, write them to `output` if given, and exit with status 1 unless all was sound."""
    text = json.dumps(found, indent=2) + "\n"
    sys.stdout.write(text)
    if output:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text)
    if not sound:
        raise SystemExit(1)
