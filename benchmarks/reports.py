"""Files of findings."""

import json
from pathlib import Path
from typing import Any


def write_findings(found: Any, output: Path) -> None:
    """Write what a benchmark found as JSON, and print where."""
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"written to {output}")
