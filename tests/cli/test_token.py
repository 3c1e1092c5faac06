import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.cli import TOKEN, Cli


def test_a_token_s_life(remote: Cli) -> None:
    made = remote.operate("operator", "token", "new", "night shift", "--scope", "sums", "--days", 1)
    assert made["scopes"] == ["sums"]
    listed = remote.operate("operator", "token", "list")["tokens"]
    assert [each["name"] for each in listed if each["token"] == made["token"]] == ["night shift"]
    refused = remote(*remote.at("operator", "token", "list"), "--token", made["secret"])
    assert "'admin'" in refused.error
    assert made["secret"] not in refused.err
    text = remote(*remote.at("operator", "token", "list"), "--token", TOKEN)
    assert "night shift" in text.out
    assert made["secret"] not in text.out
    assert remote(*remote.at("operator", "token", "revoke", made["secret"]), "--token", TOKEN).error
    assert remote.operate("operator", "token", "revoke", made["token"])["revoked"] is not None
    ended = remote(*remote.at("operator", "token", "list"), "--token", made["secret"])
    assert made["token"] in ended.error
    assert (
        "scopes"
        in remote(*remote.at("operator", "token", "new", "x", "--scope", "root"), "--token", TOKEN).error
    )


def test_without_any_token_it_says_so(remote: Cli) -> None:
    assert "VEILSUM_OPERATOR_TOKEN" in remote(*remote.at("operator", "token", "list")).error


def test_a_token_comes_from_a_file_or_standard_input(
    remote: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, listing = tmp_path / "token", remote.at("operator", "token", "list", "--json")
    file.touch(0o600)
    file.write_text(f"{TOKEN}\n")
    assert remote("--token-file", file, *listing).values.keys() == {"tokens"}
    assert remote("--token-file", file, *listing, "--token", "another").code == 0, "the file goes before"
    assert "unauthorised" in remote(*listing).out, "it is the one command's"
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(TOKEN.encode())))
    assert remote("--token-file", "-", *listing).values.keys() == {"tokens"}
    for content, said in ((b" \n", "holds no token"), (b"\xff" * 9, "not a text"), (None, "No such file")):
        file.touch(0o600)
        file.write_bytes(content or b"")
        if content is None:
            file.unlink()
        refused = remote("--token-file", file, *listing)
        assert (refused.code, said in " ".join(refused.err.replace("│", " ").split())) == (2, True)
