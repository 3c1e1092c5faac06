"""The Helm chart, rendered in its variants and checked by Kubernetes' published schemas (`make chart`)."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from service.coordination.readiness import CHECK_TIMEOUT_S
from service.storage.dialects import CONNECTIONS_MAX
from tests.support.servers import lacking
from veilsum.system.intervals import SHUTDOWN_TIMEOUT_S

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "veilsum"
VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "rolling": {"strategy": "RollingUpdate"},
    "autoscaled": {"autoscaling": {"enabled": True}},
    "large": {
        "autoscaling": {"enabled": True, "maxReplicas": 20},
        "strategy": "RollingUpdate",
        "databaseConnections": 500,
    },
    "open": {"networkPolicy": {"enabled": False}},
    "full": {
        "awsKeysInSecret": False,
        "image": {
            "repository": "registry.example.org/veilsum",
            "digest": f"sha256:{'a' * 64}",
            "pullSecrets": ["x"],
        },
        "blobs": {"url": "s3://sums/x", "endpoint": "https://s3.example.org:9000"},
        "trustedProxies": "10.42.0.0/16, 10.43.7.1",
        "metrics": {"podMonitor": True},
        "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/x"}},
        "extraEnv": [{"name": "PGSSLROOTCERT", "value": "/etc/pg/ca.crt"}],
        "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}],
        "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/pg", "readOnly": True}],
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "x", "operator": "Exists"}],
        "networkPolicy": {
            "egress": [{"to": [{"ipBlock": {"cidr": "10.1.0.0/16"}}], "ports": [{"port": 5432}]}]
        },
    },
}
KUBERNETES = ("1.27", "1.37")
"""The chart's oldest release, and the newest whose schemas are published."""
Objects = dict[str, dict[str, Any]]


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        lacking(f"{name} is not installed: make chart")
    return str(found)


def render(values: dict[str, Any], *options: str) -> subprocess.CompletedProcess[str]:
    words = [tool("helm"), *(options or ("template", "at")), str(CHART), "--values", "-"]
    return subprocess.run(words, input=json.dumps(values), capture_output=True, text=True, check=False)


def objects(values: dict[str, Any]) -> Objects:
    """Return the rendered objects by kind."""
    run = render(values)
    assert run.returncode == 0, run.stderr
    return {each["kind"]: each for each in yaml.safe_load_all(run.stdout)}


def pod_of(rendered: Objects) -> dict[str, Any]:
    spec: dict[str, Any] = rendered["Deployment"]["spec"]["template"]["spec"]
    return spec


def test_kubernetes_reads_every_variant(tmp_path: Path) -> None:
    for name, values in VARIANTS.items():
        assert render(values, "lint", "--strict").returncode == 0, name
        kept = [
            each for each in objects(values).values() if each["kind"] != "PodMonitor"
        ]  # not Kubernetes' own
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump_all(kept))
    for version in KUBERNETES:
        words = [
            tool("kubernetes-validate"),
            "--strict",
            "--version",
            version,
            *map(str, sorted(tmp_path.iterdir())),
        ]
        run = subprocess.run(words, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stdout
        assert "WARN" not in run.stdout


def test_the_longest_name_of_a_release_leaves_names_that_kubernetes_takes() -> None:
    release = "a" * 50 + "-bc"
    run = render({"autoscaling": {"enabled": True}, "metrics": {"podMonitor": True}}, "template", release)
    assert run.returncode == 0, run.stderr
    rendered = list(yaml.safe_load_all(run.stdout))
    [name] = {each["metadata"]["name"] for each in rendered}
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name)
    assert len(name) <= 63
    by_kind = {each["kind"]: each for each in rendered}
    assert pod_of(by_kind)["serviceAccountName"] == name
    assert by_kind["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == name


def test_values_of_no_sense_are_refused() -> None:
    for wrong in (
        {"replicas": 0},
        {"replica": 3},
        {"strategy": "OnDelete"},
        {"image": {"repository": "x", "digest": "sha256:1"}},
        {"blobs": {"url": "file:/x"}},
        {"terminationGracePeriodSeconds": 15},
    ):
        run = render(wrong)
        assert run.returncode != 0, wrong
        assert "values don't meet the specifications of the schema" in run.stderr


def test_a_pod_has_no_rights_and_answers_probes() -> None:
    pod = pod_of(objects({}))
    [container] = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["readinessProbe"]["timeoutSeconds"] > CHECK_TIMEOUT_S
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["livenessProbe"]["timeoutSeconds"] >= 5
    assert "memory" in container["resources"]["limits"]


def test_all_objects_select_the_same_pods() -> None:
    rendered = objects({"metrics": {"podMonitor": True}})
    labels = rendered["Deployment"]["spec"]["template"]["metadata"]["labels"]
    for kind, name in (
        ("Deployment", "selector"),
        ("PodDisruptionBudget", "selector"),
        ("PodMonitor", "selector"),
        ("NetworkPolicy", "podSelector"),
    ):
        assert rendered[kind]["spec"][name]["matchLabels"] == labels
    assert rendered["Service"]["spec"]["selector"] == labels


def test_a_pod_serves_on_until_no_request_comes_to_it() -> None:
    """Kubernetes takes it off the Service only while it ends."""
    pod = pod_of(objects({}))
    [container] = pod["containers"]
    program, seconds = container["lifecycle"]["preStop"]["exec"]["command"]
    assert program == "sleep"
    assert int(seconds) >= 5
    assert pod["terminationGracePeriodSeconds"] >= int(seconds) + SHUTDOWN_TIMEOUT_S + 5


def test_old_pods_are_gone_before_new_ones_migrate() -> None:
    assert objects({})["Deployment"]["spec"]["strategy"] == {"type": "Recreate"}
    rolling = objects(VARIANTS["rolling"])["Deployment"]["spec"]["strategy"]
    assert (rolling["type"], rolling["rollingUpdate"]["maxUnavailable"]) == ("RollingUpdate", 0)


def test_replicas_never_need_more_connections_than_postgresql_has() -> None:
    each = CONNECTIONS_MAX + 1  # one of its own at the start, to migrate
    assert "HorizontalPodAutoscaler" not in objects({})
    most = objects(VARIANTS["autoscaled"])["HorizontalPodAutoscaler"]["spec"]["maxReplicas"]
    assert (most + 1) * each <= 100 - 3, "with one more in a rolling update"
    fitting = (100 - 3) // each
    for pods, values in (
        (fitting, {"replicas": fitting}),
        (fitting + 1, {"replicas": fitting + 1}),
        (fitting + 1, {"replicas": fitting, "strategy": "RollingUpdate"}),
        (fitting + 1, {"autoscaling": {"enabled": True, "maxReplicas": fitting + 1}}),
        (fitting, {"autoscaling": {"enabled": False, "maxReplicas": 99}, "replicas": fitting}),
    ):
        run = render(values)
        assert (run.returncode == 0) == (pods <= fitting), values
        if pods > fitting:
            assert "databaseConnections" in run.stderr
            assert str(pods * each + 3) in run.stderr


def test_a_pod_reaches_names_the_database_and_the_bucket_and_is_reached_by_two_namespaces() -> None:
    policy = objects({})["NetworkPolicy"]["spec"]
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    ports = {(port["protocol"], port["port"]) for rule in policy["egress"] for port in rule["ports"]}
    assert ports == {("UDP", 53), ("TCP", 53), ("TCP", 5432), ("TCP", 443)}
    assert all(rule["ports"] for rule in policy["egress"]), "a rule without ports allows all"
    own = objects(VARIANTS["full"])["NetworkPolicy"]["spec"]["egress"]
    assert {"cidr": "10.1.0.0/16"} in [peer["ipBlock"] for rule in own for peer in rule.get("to", ())]
    assert "443" not in str(own)
    [rule] = policy["ingress"]
    assert len(rule["from"]) == 2
    assert "NetworkPolicy" not in objects(VARIANTS["open"])


def test_the_pod_s_settings_are_what_the_values_say() -> None:
    def settings(values: dict[str, Any]) -> dict[str, Any]:
        [container] = pod_of(objects(values))["containers"]
        return {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}

    plain, full = settings({}), settings(VARIANTS["full"])
    assert plain["VEILSUM_TRUSTED_PROXIES"] == ""
    assert "AWS_SECRET_ACCESS_KEY" in plain
    assert "VEILSUM_BLOBS_ENDPOINT" not in plain
    assert full["VEILSUM_TRUSTED_PROXIES"] == "10.42.0.0/16, 10.43.7.1"
    assert full["VEILSUM_BLOBS_ENDPOINT"] == "https://s3.example.org:9000"
    assert full["PGSSLROOTCERT"] == "/etc/pg/ca.crt"
    assert "AWS_SECRET_ACCESS_KEY" not in full
    pod = pod_of(objects(VARIANTS["full"]))
    assert re.fullmatch(r"registry\.example\.org/veilsum@sha256:a{64}", pod["containers"][0]["image"])
    [mount] = [each for each in pod["containers"][0]["volumeMounts"] if each["name"] == "secrets"]
    assert plain["VEILSUM_SECRETS_DIR"] == mount["mountPath"]
    assert not re.match("(/var)?/run", mount["mountPath"]), "clusters put tokens there"
