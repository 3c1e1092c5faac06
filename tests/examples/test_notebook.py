import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_top_to_bottom(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the kernel's own libraries
        nbclient = pytest.importorskip("nbclient")
        nbformat = pytest.importorskip("nbformat")
        notebook = nbformat.read(path, as_version=4)
        assert not [cell for cell in notebook.cells if cell.get("outputs")], "commit it without outputs"
        nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    assert "together" in str(notebook.cells[-2].outputs)
