"""Call one site's executor as NVFLARE's client runner does, for a test without a deployment.

.venv/bin/python drive.py settings.json    # url, identity, admin_key, approve, data, dim
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from executor import CalibrateExecutor
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.signal import Signal

SETTINGS = json.loads(Path(sys.argv[1]).read_text("utf-8")) if len(sys.argv) > 1 else {}


def features(weights: dict[str, Any]) -> tuple[Any, Any]:
    """Return the site's features under the task's weights, and labels."""
    data = np.load(SETTINGS["data"])
    return data["features"] @ weights["projection"], data["labels"]


def main() -> None:
    given = {name: SETTINGS[name] for name in ("url", "identity", "admin_key", "approve")}
    site = CalibrateExecutor(features="__main__:features", **given)
    task = DXO(DataKind.WEIGHTS, {"projection": np.eye(SETTINGS["dim"])}).to_shareable()
    unknown = site.execute("train", task, FLContext(), Signal())
    answer = site.execute("calibrate", task, FLContext(), Signal())
    found: dict[str, Any] = {"unknown": unknown.get_return_code(), "code": answer.get_return_code()}
    if answer.get_return_code() == ReturnCode.OK:
        head = from_shareable(answer)
        found["shape"] = head.data["weights"].shape
        found["head"] = head.get_meta_prop("head")
        found["unanswered"] = head.get_meta_prop("unanswered")
        found["counted"] = head.get_meta_prop("counted")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
