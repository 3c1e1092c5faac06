"""Reports of campaigns."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def report(found: Mapping[str, Any], output: Path | None, *, sound: bool) -> None:
    """Print the findings, write them to `output` if given, and exit with status 1 unless all was sound."""
    text = json.dumps(found, indent=2) + "\n"
    sys.stdout.write(text)
    if output:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text)
    if not sound:
        raise SystemExit(1)
