import json
import subprocess
import sys

import numpy as np
import pytest

from veilsum.calibration.head import Head
from veilsum.export import to_torch

WITHOUT = """
import json, sys
libraries = ["torch", "sklearn", "onnx"]
sys.modules |= dict.fromkeys(libraries)
import numpy as np
from veilsum.calibration.head import Head
from veilsum.export import to_onnx, to_sklearn, to_torch
from veilsum.protocol.errors import Misuse
head, said = Head(np.eye(2), None, ()), []
for export in (to_torch, to_sklearn, lambda head: to_onnx(head, "head.onnx")):
    try:
        export(head)
    except Misuse as error:
        said.append(str(error))
print(json.dumps(said))
"""


def test_a_library_is_needed_only_by_its_export_which_says_how_to_install_it() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    needed = ("torch", "scikit-learn", "veilsum[onnx]")
    for said, requirement in zip(json.loads(done.stdout), needed, strict=True):
        assert f"pip install '{requirement}'" in said


def test_another_missing_module_is_not_blamed_on_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "veilsum.export.torch", None)
    with pytest.raises(ModuleNotFoundError):
        to_torch(Head(np.eye(2), None, ()))
