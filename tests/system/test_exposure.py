"""File modes of secrets, and addresses without TLS."""

import os
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from client_sdk.errors import IdentityError, Misuse
from client_sdk.identity import Identity
from client_sdk.operator import Operator
from client_sdk.transport import PlainHttpWarning
from service.settings import Settings, check_given
from tests.support.authority import Authority
from tests.support.cli import Cli
from veilsum.cli.remote import name_address
from veilsum.cli.serving import believe_last_hop
from veilsum.system.exposure import in_the_clear, refuse_loose_mode


@pytest.mark.parametrize(
    ("mode", "owners", "groups"),
    [
        (0o600, None, None),
        (0o400, None, None),
        (0o440, "read", None),
        (0o660, "change", None),
        (0o644, "read", "read"),
        (0o602, "change", "change"),
    ],
)
def test_who_may_read_a_secret(tmp_path: Path, mode: int, owners: str | None, groups: str | None) -> None:
    path = tmp_path / "a key"
    path.touch()
    path.chmod(mode)
    for group_may, deed in ((False, owners), (True, groups)):
        said = f"others may {deed} {path} (mode {mode:04o}): run chmod 600 '{path}'"
        with nullcontext() if deed is None else pytest.raises(Misuse, match=re.escape(said)):
            refuse_loose_mode(path, group_may=group_may)


def test_who_does_not_own_a_secret_is_told_how_to_mount_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder").chmod(0o2777)
    (tmp_path / "file").touch(0o644)
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    for name, remedy in (("folder", "or name a folder inside it"), ("file", "or mount it with mode 0440")):
        with pytest.raises(Misuse, match=f"{remedy}$"):
            refuse_loose_mode(tmp_path / name, group_may=True)


@pytest.mark.parametrize(
    ("url", "clear"),
    [
        ("http://127.0.0.1:8000", False),
        ("http://127.8.0.1", False),
        ("http://[::1]:80", False),
        ("http://localhost", False),
        ("https://sum.example.org", False),
        ("http://sum.example.org", True),
        ("http://0.0.0.0:8000", True),
        ("http://[::]:8000", True),
        ("http://10.0.0.1", True),
    ],
)
def test_which_addresses_are_in_the_clear(url: str, *, clear: bool) -> None:
    assert in_the_clear(url) is clear


def test_the_sdk_and_commands_warn_of_plain_http(capsys: pytest.CaptureFixture[str]) -> None:
    url, words = "http://user:secret@sum.example.org", "http://sum.example.org is plain HTTP on a network"
    with pytest.warns(PlainHttpWarning, match=words), Operator(url):
        pass
    with name_address(url), Operator(url):
        pass
    said = capsys.readouterr().err
    assert said.startswith(f"WARNING: {words}")
    assert "secret" not in said


def test_a_member_s_folder_is_nobody_else_s(tmp_path: Path) -> None:
    home = Identity.create(tmp_path / "home", "m").folder
    home.chmod(0o750)
    assert Identity.load(home).member == "m"
    home.chmod(0o777)
    with pytest.raises(IdentityError, match=f"chmod 700 {home}"):
        Identity.load(home)


def test_a_client_s_key_is_its_owner_s(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path, "authority").issue("member")
    key.chmod(0o644)
    with pytest.raises(Misuse, match=f"run chmod 600 {key}"):
        Operator("https://127.0.0.1", cert=(str(certificate), str(key)))


def test_a_token_s_file_is_its_owner_s(cli: Cli) -> None:
    Path("token").write_text("a token of some length\n")
    Path("token").chmod(0o644)
    refused = cli("--token-file", "token", "operator", "token", "list")
    assert (refused.code, "chmod 600 token" in " ".join(refused.err.replace("│", " ").split())) == (2, True)


@pytest.mark.parametrize("mode", [0o755, 0o702])
def test_a_data_folder_that_others_enter_is_refused(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    Path("data").mkdir()
    Path("data").chmod(mode)
    assert cli("serve", "--port", 0, "--data-dir", "data").error.endswith("run chmod 700 data")
    assert list(Path("data").iterdir()) == []
    Path("data/coordinator.sqlite3").touch()
    monkeypatch.setenv("VEILSUM_DATA_DIR", "data")
    assert cli("operator", "db", "current").error.endswith("run chmod 700 data")


def test_files_of_secrets_are_refused_when_others_read_them(tmp_path: Path) -> None:
    for name, mode in (("veilsum_operator_token", 0o440), ("another_s", 0o644)):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(mode)
    check_given(tmp_path)
    (tmp_path / "veilsum_operator_token").chmod(0o444)
    with pytest.raises(Misuse, match=f"run chmod 600 {tmp_path / 'veilsum_operator_token'}"):
        check_given(tmp_path)


def test_a_misspelt_setting_is_refused(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of commands, of a cluster's service called veilsum or of other programs don't count as settings."""
    others = {"OPERATOR_TOKN", "veilsum_connections"}
    others |= {
        f"VEILSUM_{name}"
        for name in ("URL", "COORDINATOR_URL", "CA", "CLIENT_KEY", "CLIENT_CERT", "ADMIN_KEY", "FEDERATION")
    }
    others |= {f"VEILSUM_{name}" for name in ("DATA", "SECRETS_DIR", "SERVICE_HOST", "PORT_8000_TCP_ADDR")}
    for name in others:
        monkeypatch.setenv(name, "1")
    check_given(tmp_path)
    for name in ("VEILSUM_OICD", "VEILSUM_OICD_ISSUER", "VEILSUM_OIDC_ISSUER"):  # OIDC is one JSON document
        monkeypatch.setenv(name, "1")
        with pytest.raises(Misuse, match=rf"^{name} .*VEILSUM_OIDC\b"):
            check_given(tmp_path)
        monkeypatch.delenv(name)
    monkeypatch.setenv("VEILSUM_SECRET_DIR", "/etc/veilsum/secrets")
    with pytest.raises(Misuse, match=r"^VEILSUM_SECRET_DIR .*VEILSUM_SECRETS_DIR\b"):
        check_given(tmp_path)
    monkeypatch.delenv("VEILSUM_SECRET_DIR")
    (tmp_path / "veilsum_coordinator_kye").touch()
    with pytest.raises(Misuse, match=r"^veilsum_coordinator_kye .*VEILSUM_COORDINATOR_KEY"):
        check_given(tmp_path)
    monkeypatch.setenv("VEILSUM_OPERATOR_TOKN", "a secret")
    error = cli("serve", "--port", 0).error
    assert re.match(r"VEILSUM_OPERATOR_TOKN .*VEILSUM_OPERATOR_TOKEN\b", error)


def test_a_setting_s_file_that_can_t_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator without its database's address would start on SQLite."""
    folder, elsewhere = tmp_path / "secrets", tmp_path / "url"
    (folder / "data").mkdir(parents=True)
    elsewhere.write_text("postgresql://veilsum@db/veilsum")
    setting = folder / "veilsum_database_url"

    def refusal() -> str:
        with pytest.raises(Misuse) as refused:
            Settings(_secrets_dir=folder)
        return str(refused.value).removeprefix(str(setting))

    setting.mkdir()
    assert refusal().startswith(" is not a file")
    setting.rmdir()
    setting.symlink_to(folder / "nowhere")
    assert refusal().startswith(" is not a file")
    setting.unlink()
    setting.symlink_to(elsewhere)
    assert refusal() == f" links to a file outside of {folder}: put the file itself there"
    setting.unlink()
    setting.write_bytes(b"\xff\xfe")
    assert refusal().startswith(" isn't UTF-8 text")
    setting.unlink()
    elsewhere.rename(folder / "data" / "url")  # as Kubernetes mounts secrets
    setting.symlink_to(Path("data") / "url")
    (folder / "veilsum_of_another_program").mkdir()
    assert Settings(_secrets_dir=folder).database_url is not None

    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refuse)
    assert refusal() == f"can't read {setting}: Permission denied"


@pytest.mark.parametrize("text", ["{", "[]", "", "\N{BYTE ORDER MARK}{}"])
def test_an_issuer_s_file_that_isn_t_a_json_object_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "veilsum_oidc").write_text(text, "utf-8")
    with pytest.raises(Misuse, match=r"^VEILSUM_OIDC: expected a JSON object$"):
        Settings(_secrets_dir=tmp_path)


def test_a_server_s_key_that_others_read_is_refused(cli: Cli) -> None:
    certificate, key = Authority(Path(), "authority").issue("coordinator")
    key.chmod(0o644)
    refused = cli("serve", "--port", 0, "--tls-cert", certificate, "--tls-key", key)
    assert refused.error.endswith("chmod 600 coordinator.key")


@pytest.mark.parametrize(
    ("host", "proxies", "warned"),
    [("127.0.0.1", "", False), ("0.0.0.0", "", True), ("0.0.0.0", "10.0.0.0/8, 192.0.2.7", False)],
)
def test_plain_http_is_warned_of_and_only_named_proxies_are_believed(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, host: str, proxies: str, *, warned: bool
) -> None:
    given = list[tuple[bool, str]]()

    def config(*_: object, proxy_headers: bool, forwarded_allow_ips: str, **__: object) -> None:
        given.append((proxy_headers, forwarded_allow_ips))
        raise Misuse("enough")

    monkeypatch.setattr("uvicorn.Config", config)
    monkeypatch.setenv("VEILSUM_TRUSTED_PROXIES", proxies)
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    said = cli("serve", "--port", 0, "--host", host)
    assert ("WARNING: http://0.0.0.0:" in said.err) is warned
    assert given == [(proxies != "", proxies)]


@pytest.mark.parametrize(
    ("lines", "sender"),
    [
        (["6.6.6.6, 192.0.2.1"], "192.0.2.1"),
        (["6.6.6.6", "7.7.7.7,2001:db8::1"], "2001:db8::1"),
        (["192.0.2.1"], "192.0.2.1"),
        (["6.6.6.6,"], "127.0.0.1"),
        ([], "127.0.0.1"),
    ],
)
async def test_a_proxy_at_any_address_is_believed_what_it_wrote_itself(lines: list[str], sender: str) -> None:
    """The last entry: its caller can write all others."""
    seen = list[Any]()

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        seen.append((scope["client"][0], scope["scheme"]))

    headers = [(b"x-forwarded-proto", b"https"), *((b"x-forwarded-for", line.encode()) for line in lines)]
    scope = {"type": "http", "client": ("127.0.0.1", 1), "scheme": "http", "headers": headers}
    await believe_last_hop(app)(scope, None, None)
    assert seen == [(sender, "https")]


def test_an_empty_variable_is_one_that_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VEILSUM_DATA_DIR", "VEILSUM_COORDINATOR_KEY", "VEILSUM_MAX_WAIT_S"):
        monkeypatch.setenv(name, "")
    assert Settings() == Settings(data_dir=Path("veilsum-data"), coordinator_key=None, max_wait_s=30.0)


def test_proxies_are_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VEILSUM_TRUSTED_PROXIES", "*")
    assert Settings().trusted_proxies == "*"
    monkeypatch.setenv("VEILSUM_TRUSTED_PROXIES", "10.0.0.1, ingress")
    with pytest.raises(Misuse, match="VEILSUM_TRUSTED_PROXIES: 'ingress'"):
        Settings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VEILSUM_MAX_WAIT_S", "61"),
        ("VEILSUM_RESUME_GRACE_S", "inf"),
        ("VEILSUM_RESUME_GRACE_S", "1e300"),
        ("VEILSUM_CALLER_REQUESTS_PER_S", "1e308"),
        ("VEILSUM_ADDRESS_REQUESTS_PER_S", "1e308"),
        ("VEILSUM_BODY_ROOM_BYTES", "9" * 30),
        ("VEILSUM_CONNECTIONS", "9" * 30),
        ("VEILSUM_AUDIT_DAYS", "9" * 22),
        ("VEILSUM_PUBLIC_URL", "https://sum.example.org:99999"),
        ("VEILSUM_PUBLIC_URL", "https://sum.example.org:port/path"),
        ("VEILSUM_ADDRESS_REQUESTS_PER_S", "inf"),
        ("VEILSUM_PUBLIC_URL", "sum.example.org"),
        ("VEILSUM_BLOBS_ENDPOINT", "https://s3.example.org"),
    ],
)
def test_a_value_that_can_t_be_used_is_refused_by_the_variable_s_name(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    assert cli("serve", "--port", 0).error.startswith(name)


def test_a_data_folder_that_is_a_file_is_refused(cli: Cli) -> None:
    Path("data").touch()
    assert cli("serve", "--port", 0, "--data-dir", "data").error.startswith("data ")


def test_a_folder_of_secrets_that_is_missing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_given(tmp_path / "none")
    monkeypatch.setenv("VEILSUM_SECRETS_DIR", str(tmp_path / "none"))
    with pytest.raises(Misuse, match=r"VEILSUM_SECRETS_DIR: .*none"):
        check_given(tmp_path / "none")
