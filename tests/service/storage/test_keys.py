from pathlib import Path

import pytest
from pydantic import SecretStr

from service.settings import Settings
from service.storage import keys
from tests.support.serving import running
from veilsum.protocol.errors import Misuse

pytestmark = pytest.mark.both_stores


async def test_all_replicas_of_a_database_have_one_key(
    tmp_path: Path, stores: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as server:
        key = server.coordinator.key
    (tmp_path / "coordinator.key").unlink()
    said = {
        "embedded": r"coordinator\.key .*coordinator\.sqlite3",
        "servers": f"{key.public.hex()}.*VEILSUM_COORDINATOR_KEY",
    }
    with pytest.raises(Misuse, match=said[stores]):
        async with running(tmp_path):
            pass
    async with running(tmp_path, coordinator_key=key.seed.hex().upper()) as server:
        assert server.coordinator.key.public == key.public


@pytest.mark.parametrize("text", ["00" * 31, "x" * 64, "\t"])
def test_a_key_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(Misuse, match="64 hexadecimal") as caught:
        keys.key_of(Settings(coordinator_key=SecretStr(text)))
    assert text not in str(caught.value)


def test_the_coordinators_key_is_made_once_and_is_its_owners_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "key"
    made = keys.load_or_create_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert keys.load_or_create_key(path).public == made.public
    monkeypatch.setattr(Path, "exists", lambda _: False)  # as for who looks at the same time
    assert keys.load_or_create_key(path).public == made.public
    monkeypatch.undo()
    path.chmod(0o640)
    with pytest.raises(Misuse, match="chmod 600"):
        keys.load_or_create_key(path)
    path.chmod(0o600)
    path.write_bytes(b"short")
    with pytest.raises(Misuse, match="5 bytes"):
        keys.load_or_create_key(path)
    assert [file.name for file in tmp_path.iterdir()] == ["key"]
