import json
from pathlib import Path

from tests.support.cli import Cli


def test_the_log_is_fetched_and_checked(remote: Cli) -> None:
    made = remote.operate("operator", "token", "new", "auditor", "--scope", "audit")
    reader = ("--token", made["secret"])
    first = remote.json(*remote.at("operator", "audit", "verify"), *reader)
    assert first["complete"] is True
    other = remote.operate("operator token new", "x", "--scope audit")
    remote.operate("operator token revoke", other["token"])
    second = remote.json(*remote.at("operator", "audit", "verify", "--head", first["head"]), *reader)
    assert second["entries"] >= first["entries"] + 2
    assert second["noted_heads_found"] == 1
    exported = remote.json(*remote.at("operator", "audit", "export", "log.json"), *reader)
    assert exported["entries"] >= second["entries"]
    assert made["secret"] not in Path("log.json").read_text()
    remote.json("admin", "roster", "r.json", "--member", f"a={'ab' * 32}", "--url", remote.url)
    key_of = json.loads(Path("r.json").read_text())["coordinator"]
    words = ("operator audit verify", "log.json", "--coordinator-key", key_of)
    offline = (*words, "--head", second["head"])
    assert remote.json(*offline)["head"] == exported["head"]
    page = json.loads(Path("log.json").read_text())
    page["entries"][1]["who"] = "member somebody-else"
    Path("log.json").write_text(json.dumps(page))
    assert "entry 2 " in remote(*offline).error
    Path("log.json").write_text("{}")
    assert "log.json" in remote(*offline).error
    assert "--coordinator-key" in remote("operator", "audit", "verify", "log.json").error
    assert "NUMBER:HASH" in remote("operator", "audit", "verify", "log.json", "--head", "1").error
