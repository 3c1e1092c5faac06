"""Checks of deployment files without Docker, Helm or Kubernetes: they parse, agree with each other, and grant no needless right."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from typer.main import get_command
from uvicorn.middleware.proxy_headers import _TrustedHosts

from docs.hooks import commands
from service.settings import SECRETS_DIR
from tests.deploy.services import settings_of
from veilsum.cli.app import app

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "veilsum"
TEMPLATES = sorted((CHART / "templates").glob("*.yaml"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def loaded(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    return values


@pytest.mark.parametrize("path", sorted((DEPLOY / "docker").glob("*.Dockerfile")), ids=lambda path: path.stem)
def test_images_run_as_nobody_on_a_named_base(path: Path) -> None:
    lines = [line.split() for line in path.read_text().splitlines() if line and line[0].isalpha()]
    assert all(":" in words[1] and "latest" not in words[1] for words in lines if words[0] == "FROM")
    [user] = [words[1] for words in lines if words[0] == "USER"]
    assert user == "10001:10001"
    last = max(index for index, words in enumerate(lines) if words[0] == "FROM")
    assert not [words for words in lines[last:] if words[0] == "COPY" and "--from=build" not in words]
    assert "--constraint constraints.txt" in path.read_text()


@pytest.mark.parametrize("path", sorted((DEPLOY / "compose").glob("*.yml")), ids=lambda path: path.stem)
def test_compose_services_have_no_rights_and_one_door(path: Path) -> None:
    file = loaded(path)
    doors = [name for name, service in file["services"].items() if "ports" in service]
    assert doors == (["nginx"] if "nginx" in file["services"] else ["coordinator"])
    for name, service in file["services"].items():
        assert "build" in service or re.search(r":(?!latest)[^:/]+$", service["image"]), service["image"]
        if "build" in service or name == "nginx":
            assert service["read_only"] is True
            assert service["cap_drop"] == ["ALL"]
            assert service["security_opt"] == ["no-new-privileges:true"]
        if "build" in service:
            assert (path.parent / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
        kept = service["logging"]["options"]
        assert int(kept["max-file"]) * _bytes(kept["max-size"]) <= 100 << 20
        assert _bytes(service["mem_limit"]) <= 2 << 30
        assert set(service.get("secrets", ())) <= set(file["secrets"])
        assert set(service.get("networks", ())) <= set(file.get("networks", ()))
        assert not re.search(
            r"(PASSWORD|TOKEN|SECRET|KEY)['\"]?: (?!\S*(_FILE|s3_))", str(service.get("environment", {}))
        )


def _bytes(size: str) -> int:
    return int(size[:-1]) << {"m": 20, "g": 30}[size[-1]]


@pytest.mark.parametrize("path", sorted((DEPLOY / "compose").glob("*.yml")), ids=lambda path: path.stem)
def test_secrets_lie_where_neither_git_nor_an_image_takes_them(path: Path) -> None:
    file = loaded(path)
    mounts = [each for service in file["services"].values() for each in service.get("volumes", ())]
    places = [each.partition(":")[0] for each in mounts if each.startswith("./")]
    places += [secret["file"] for secret in file["secrets"].values()]
    assert all(each.startswith("./secrets/") or (path.parent / each).is_file() for each in places)
    for ignoring in (".gitignore", ".dockerignore"):
        lines = [line.rstrip("/") for line in (ROOT / ignoring).read_text().splitlines()]
        assert "deploy/compose/secrets" in lines


def test_every_coordinator_is_started_with_its_bounds() -> None:
    unit = settings_of((DEPLOY / "veilsum.service").read_text())
    image = (DEPLOY / "docker" / "coordinator.Dockerfile").read_text()
    [command] = re.findall(r"^CMD (.+)$", image, re.MULTILINE)
    replicas = loaded(DEPLOY / "compose" / "replicas.yml")["services"]["coordinator-1"]["command"]
    started = [*(line.split() for line in unit["ExecStart"]), json.loads(command), replicas]
    assert len(started) == 3
    serve = dict(commands(get_command(app)))["veilsum serve"]
    for program, verb, *options in started:
        assert (Path(program).name, verb) == ("veilsum", "serve")
        with serve.make_context("serve", options) as context:
            assert context.params["port"] == 8000
    assert int(unit["LimitNOFILE"][0]) >= 4 * _settings()["connections"].default
    assert "MALLOC_ARENA_MAX=2" in image
    assert "'.[service,otel]'" in image, "settings may name OTEL_…"
    assert "MALLOC_ARENA_MAX=2" in unit["Environment"][0]


@pytest.mark.parametrize("path", sorted(DEPLOY.glob("*.service")), ids=lambda path: path.stem)
def test_a_unit_is_started_again_however_long_what_it_needs_is_away(path: Path) -> None:
    unit = settings_of(path.read_text())
    assert (unit["StartLimitIntervalSec"], unit["Restart"][0]) in ((["0"], "always"), (["0"], "on-failure"))
    assert int(unit["RestartSec"][0]) >= 5


def test_nginx_knows_the_replicas() -> None:
    services = loaded(DEPLOY / "compose" / "replicas.yml")["services"]
    nginx = (DEPLOY / "compose" / "nginx.conf").read_text()
    assert set(re.findall(r"server (coordinator-\d):8000", nginx)) == {
        n for n in services if n.startswith("coord")
    }
    # A recreated replica has a new address, and nginx resolves names only once, at its start, unless told otherwise.
    assert len(re.findall(r"server coordinator-\d:8000 resolve ", nginx)) == 3
    assert re.search(
        r"^  resolver 127\.0\.0\.11 valid=5s;.*^  upstream .*^    zone ", nginx, re.MULTILINE | re.DOTALL
    )
    release = re.search(r"nginx-unprivileged:1\.(\d+)", services["nginx"]["image"])
    assert release is not None
    assert int(release[1]) >= 28, "`resolve` came in the middle of 1.27"
    assert "ssl_verify_client on;" in nginx
    assert nginx.count("{") == nginx.count("}")


def test_the_chart_uses_every_value_and_no_other() -> None:
    values, used = loaded(CHART / "values.yaml"), set[str]()
    for template in TEMPLATES:
        text = template.read_text()
        assert text.count("{{") == text.count("}}")
        opened = len(re.findall(r"{{-? ?(?:if|range|with) ", text))
        assert opened == len(re.findall(r"{{-? ?end ?-?}}", text)), template.name
        used |= set(re.findall(r"\.Values\.([A-Za-z.]+)", text))
    for path in used:
        here: Any = values
        for name in path.split("."):
            assert name in here, path
            here = here[name]
    assert {path.split(".")[0] for path in used} == set(values)


def test_the_chart_believes_only_the_proxies_that_are_named() -> None:
    named = yaml.safe_load((CHART / "values.schema.json").read_text())["properties"]["trustedProxies"]
    for right in ("", "10.42.0.0/16", "10.42.0.0/16, 192.0.2.7", "fd00::/8,10.0.0.1"):
        jsonschema.validate(right, named)
        trusted = _TrustedHosts(right)
        assert ("10.42.3.4" in trusted, "6.6.6.6" in trusted) == ("10.42" in right, False)
    for wrong in ("*", "10.42.0.0/16,*", "0.0.0.0/0", "::/0", "ingress", "10.0.0.1 10.0.0.2"):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, named)


def test_settings_are_read_from_the_chart_s_folder_of_secrets(tmp_path: Path) -> None:
    (tmp_path / "veilsum_max_wait_s").write_text("7\n")
    asked = [sys.executable, "-c", "from service.settings import Settings; print(Settings().max_wait_s)"]
    environment = {**os.environ, SECRETS_DIR: str(tmp_path), "PYTHONPATH": str(ROOT)}
    assert subprocess.check_output(asked, env=environment, text=True) == "7.0\n"


def test_settings_in_files_are_the_coordinator_s_or_a_command_s() -> None:
    known = {f"VEILSUM_{name.upper()}" for name in _settings()} | {SECRETS_DIR}
    options = [each for _, command in commands(get_command(app)) for each in command.params]
    known |= {str(each.envvar) for each in options if each.envvar}
    texts = [
        path.read_text("utf-8")
        for path in DEPLOY.rglob("*")
        if path.suffix in {".yml", ".yaml", ".Dockerfile", ".service"} and path.parent.name != "grafana"
    ]
    named = set(re.findall(r"\bVEILSUM_[A-Z_]+\b", "\n".join(texts)))
    assert named <= known, named - known
    secrets = set(re.findall(r"\bveilsum_[a-z_]+\b", "\n".join(texts)))
    assert {each.upper() for each in secrets} <= known


def _settings() -> dict[str, Any]:
    from service.settings import Settings  # noqa: PLC0415 - slow

    return dict(Settings.model_fields)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_have_no_rights_but_those_they_name_and_run_what_exists(path: Path) -> None:
    workflow, makefile = loaded(path), (ROOT / "Makefile").read_text()
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            if "uses" in step:
                pinned = re.fullmatch(r"[\w.-]+/[\w./-]+@(v\d+(\.\d+)*|[0-9a-f]{40})", step["uses"])
                assert pinned, f"{step['uses']}: neither a release's tag nor a commit"
            if "checkout" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False
            for target in re.findall(r"make ([a-z-]+)", step.get("run", "")):
                assert re.search(rf"^{target}:", makefile, re.MULTILINE)
            assert "${{ github.event" not in step.get("run", ""), "a title could be a command"


def test_actions_are_pinned_by_the_commits_of_their_tags(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        said = ["git", *["-c", "user.name=x", "-c", "user.email=x@example.org"], *words]
        where = tmp_path / "owner" / "action"
        return subprocess.check_output(said, cwd=where, text=True, stderr=subprocess.DEVNULL).strip()

    (tmp_path / "owner" / "action").mkdir(parents=True)
    git("init")
    for tag in (("tag", "v1"), ("tag", "-a", "v2", "-m", "annotated")):
        git("commit", "--allow-empty", "-m", tag[-1])
        git(*tag)
    flow = tmp_path / "flow.yml"
    flow.write_text("- uses: owner/action/deep@v2 # a note\n- uses: owner/action@v1\n  with: {}\n")
    here = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": f"url.{tmp_path}/.insteadOf"}
    words = [ROOT / ".ci" / "pin-actions", tmp_path]
    environment = {**os.environ, **here, "GIT_CONFIG_VALUE_0": "https://github.com/"}
    subprocess.run(words, check=True, env=environment)
    first, second = git("rev-parse", "v1"), git("rev-parse", "v2^{commit}")
    pinned = f"- uses: owner/action/deep@{second} # v2\n- uses: owner/action@{first} # v1\n  with: {{}}\n"
    assert flow.read_text() == pinned
    subprocess.run(words, check=True, env=environment)
    assert flow.read_text() == pinned
    flow.write_text("- uses: owner/action@v3\n")
    run = subprocess.run(words, check=False, env=environment, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (1, "owner/action has no tag v3\n")
