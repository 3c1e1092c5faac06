from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client_sdk.federation import Federation


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    built = Federation(tmp_path)
    yield built
    built.close()
