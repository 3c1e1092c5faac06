from pathlib import Path

import pytest

from veilsum.protocol.errors import Misuse
from veilsum.system.key_files import create_key, load_key, parse_key


def test_a_key_is_made_once_and_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.key"
    assert create_key(path)
    made = load_key(path)
    assert not create_key(path)
    assert load_key(path).seed == made.seed
    assert [each.name for each in tmp_path.iterdir()] == ["a.key"]
    path.chmod(0o640)
    with pytest.raises(Misuse, match="chmod 600"):
        load_key(path)
    path.chmod(0o600)
    path.write_bytes(made.seed[:-1])
    with pytest.raises(Misuse, match="31 bytes, expected 32"):
        load_key(path)


def test_a_key_in_digits_is_read_and_never_shown(tmp_path: Path) -> None:
    create_key(tmp_path / "a.key")
    made = load_key(tmp_path / "a.key")
    assert parse_key(f" {made.seed.hex().upper()}\n").seed == made.seed
    for text in ("", made.seed.hex()[1:], made.seed.hex() + "00", "x" * 64):
        with pytest.raises(Misuse) as caught:
            parse_key(text)
        assert str(caught.value) == "expected 64 hexadecimal digits"
