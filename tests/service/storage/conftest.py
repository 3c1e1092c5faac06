import pytest

from tests.service.storage.kept import CHUNK_ELEMENTS
from veilsum.protocol import round_spec


@pytest.fixture(autouse=True)
def chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the chunk length of the kept folders."""
    monkeypatch.setattr(round_spec, "CHUNK_ELEMENTS", CHUNK_ELEMENTS)
