"""From an empty folder to a head in a model, command by command, with a clock: alone, with replicas, from Flower.

Every command is run by a shell as it stands, in the folder that the one before left, and what it printed is looked at. What a
person has before they begin (features, a model, a database server, a bucket, certificates) is put there first and not counted.

    .venv/bin/python -m tests.deploy.trial --output runs/trial.json
    .venv/bin/python -m tests.deploy.trial --page benchmarks/figures/trial.json > docs/trial.md
"""

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from tests.deploy.test_nginx import free_port
from tests.service.servers import ADMIN_URL, BUCKET, CREDENTIALS, bucket_served
from tests.veilsum.authority import Authority
from tests.veilsum.test_processes import children

ROOT = Path(__file__).parents[2]
COMMANDS, SECONDS = 8, 300
PATIENCE_S = 1800.0
DIM, CLASSES, NAMES = 64, 10, ("a", "b", "c")
MEMBERS = " ".join(f"--member {name}" for name in NAMES)
INSTALL = "python3 -m venv try && try/bin/pip install --quiet"
TORCH = (
    "torch",
    "torchgen",
    "functorch",
    "sympy",
    "mpmath",
    "networkx",
    "filelock",
    "fsspec",
    "jinja2",
    "markupsafe",
)
"""What PyTorch is made of, beside what veilsum brings."""
MODEL = """import numpy as np, torch
torch.manual_seed(0)
model = torch.nn.Sequential()
model.add_module("body", torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()))
model.add_module("fc", torch.nn.Linear(64, 10))
test = np.load("test.npz")
def accuracy():
    x = torch.tensor(test["x"], dtype=torch.float32)
    return float((model(x).argmax(1).numpy() == test["y"]).mean())
"""
REPLACED = (
    "from mine import model, accuracy; from client_sdk import Result; from veilsum.integrations.torch import replace_head; "
    "before = accuracy(); replace_head(model, Result.load('pilot/a/result')); print(before, accuracy())"
)


@dataclass
class Trial:
    """One way through, in a folder of its own.

    Attributes:
        folder: where the commands run.
        hidden: what is shown in the place of this machine's paths.
        steps: who typed what, and the seconds until the next command could be typed; or what befell them.
    """

    folder: Path
    hidden: dict[str, str]
    steps: list[dict[str, Any]] = field(default_factory=list)
    running: list[tuple[str, subprocess.Popen[bytes], Path]] = field(default_factory=list)

    def types(self, who: str, command: str, *, until: str | None = None) -> str:
        """Run a command to its end, or in the background until it has printed `until`; what it printed.

        Raises:
            SystemExit: it failed, or took too long.
        """
        log, began_s, used_s = self.folder / f"{len(self.steps)}.log", time.monotonic(), processor_s()
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("VEILSUM_", "PYTHON"))
        }
        with log.open("wb") as out:
            process = subprocess.Popen(
                ["bash", "-c", command],
                cwd=self.folder,
                env={**kept, "PATH": f"{self.folder / 'try' / 'bin'}:{kept['PATH']}:/usr/sbin"},
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.running.append((command, process, log))
        while process.poll() is None and not (until is not None and until in log.read_text("utf-8")):
            if time.monotonic() - began_s > PATIENCE_S:
                raise SystemExit(f"{command}: not done in {PATIENCE_S:g} s\n{log.read_text('utf-8')}")
            time.sleep(0.05)
        said = log.read_text("utf-8")
        if process.returncode or (until is not None and until not in said):
            raise SystemExit(f"{command}: exit status {process.returncode}\n{said}")
        shown = command if until is None else f"{command} &"
        for path, name in self.hidden.items():
            shown = shown.replace(path, name)
        step = {"who": who, "command": shown, "seconds": round(time.monotonic() - began_s, 1)}
        if until is None:  # what goes on in the background is not counted yet
            step["processor_s"] = round(processor_s() - used_s, 1)
        self.steps.append(step)
        sys.stdout.write(f"{step['seconds']:7.1f} s  {who}: {shown}\n")
        sys.stdout.flush()
        return said

    def befalls(self, what: str) -> None:
        """Something that nobody typed."""
        self.steps.append({"event": what})
        sys.stdout.write(f"           ({what})\n")

    def serves(self, port: int, environment: str, more: str = "") -> None:
        """A coordinator that answers."""
        self.types(
            "operator",
            f"{environment} veilsum serve --data-dir coordinator --port {port}{more}",
            until=f"://127.0.0.1:{port}",
        )

    def join(self, name: str, more: str = "", end: str = "") -> None:
        """A member's one command: the others' run on in the background, `c`'s until all are done."""
        command = f"veilsum{more} member join pilot/{name} --features {name}.npz --normalise{end}"
        self.types(f"member {name}", command, until=None if name == NAMES[-1] else "enrolling")
        for line, process, log in self.running if name == NAMES[-1] else ():
            if " join " in line and process.wait(120):
                raise SystemExit(log.read_text("utf-8"))

    def verifies(self) -> None:
        said = self.types(
            "anybody", "veilsum verify pilot/a/result --admin-key $(cat pilot/a/admin-key) --json"
        )
        values = json.loads(said)
        if not (values["counted"] and values["verified_against"] == "the pinned admin key"):
            raise SystemExit(said)

    def end(self) -> None:
        """Stop whatever still runs."""
        for _, process, _ in reversed(self.running):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait(120)


def processor_s() -> float:
    """What this process's children have used until they ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def with_torch(folder: Path) -> None:
    """An environment in which a PyTorch model runs: this one's PyTorch, and nothing else of it."""
    subprocess.run([sys.executable, "-m", "venv", folder / "try"], check=True)
    site = Path(np.__file__).parents[1]
    [into] = (folder / "try" / "lib").glob("python3*/site-packages")
    for name in TORCH:
        (into / name).symlink_to(site / name)


def digits() -> tuple[Any, Any]:
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return (x / 16 - 0.5)[order], y[order]


def own_features(folder: Path) -> None:
    """A model, the features that its body gives of three members' digits (each holds few classes), and digits to judge on."""
    x, y = digits()
    np.savez(folder / "test.npz", x=x[:400], y=y[:400])
    (folder / "mine.py").write_text(MODEL)
    np.savez(folder / "all.npz", x=x[400:], y=y[400:])
    code = """import numpy as np, torch
from mine import model
data = np.load("all.npz")
z, y = model.body(torch.tensor(data["x"], dtype=torch.float32)).detach().numpy(), data["y"]
for index, name in enumerate("abc"):
    mine = (y * 3 // 10 == index) | (np.arange(len(y)) % 5 == index)
    np.savez(f"{name}.npz", features=z[mine], labels=y[mine])
"""
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)


def alone(trial: Trial, wheel: str) -> dict[str, Any]:
    own_features(trial.folder)
    with_torch(trial.folder)
    port = free_port()
    pip = "try/bin/pip install --quiet"
    trial.types("operator", f"{pip} '{wheel}[service]' --constraint {ROOT}/constraints.txt")
    trial.serves(port, "VEILSUM_OPERATOR_TOKEN=try-it")
    at = f" --url http://127.0.0.1:{port}"
    trial.types(
        "operator and admin",
        f"veilsum pilot pilot {MEMBERS} --dim {DIM} --classes {CLASSES} --token try-it{at}",
        until="c takes part by",
    )
    for name in NAMES:
        trial.join(name, end=at)
    trial.verifies()
    before, after = map(float, trial.types("member a", f'try/bin/python -c "{REPLACED}"').split())
    if after < 0.85:
        raise SystemExit(f"accuracy {after}")
    return {"accuracy before": round(before, 3), "accuracy with the head": round(after, 3)}


def replicas(trial: Trial, wheel: str, bucket: str) -> dict[str, Any]:
    folder, port = trial.folder, free_port()
    own_features(folder)
    database, authority = f"veilsum_trial_{os.getpid()}", Authority(folder, "clients")
    for name in ("server", "us"):
        authority.issue(name)
    settings = {
        "VEILSUM_DATABASE_URL": f"{ADMIN_URL.rpartition('/')[0]}/{database}",
        "VEILSUM_BLOBS_URL": f"s3://{BUCKET}/{database}",
        "VEILSUM_BLOBS_ENDPOINT": bucket,
        "VEILSUM_OPERATOR_TOKEN": "try-it",
        **CREDENTIALS,
    }
    (folder / "coordinator.env").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    psql = f"psql --quiet {ADMIN_URL} --command"
    trial.types("operator", f"{INSTALL} '{wheel}[service]' --constraint {ROOT}/constraints.txt")
    trial.types("operator", f"{psql} 'CREATE DATABASE {database}'")
    try:
        tls = " --tls-cert server.pem --tls-key server.key --client-ca clients.pem"
        trial.serves(port, "env $(cat coordinator.env)", f" --processes 2{tls}")
        us, at = (
            " --client-cert us.pem --client-key us.key",
            f" --url https://127.0.0.1:{port} --ca clients.pem",
        )
        trial.types(
            "operator and admin",
            f"veilsum{us} pilot pilot {MEMBERS} --dim {DIM} --classes {CLASSES} --token try-it{at}",
            until="c takes part by",
        )
        for name in NAMES[:-1]:
            trial.join(name, us, at)
        [serving] = (process.pid for line, process, _ in trial.running if " serve " in line)
        os.kill(children(serving)[0], signal.SIGKILL)
        trial.befalls("one of the two processes is killed")
        trial.join(NAMES[-1], us, at)
        trial.verifies()
    finally:
        trial.end()
        subprocess.run(f"{psql} 'DROP DATABASE {database} (FORCE)'", shell=True, check=True)
    return {"processes": 2, "killed before the last member came": 1}


def flower(trial: Trial, wheel: str) -> dict[str, Any]:
    folder, port, example = trial.folder, free_port(), ROOT / "examples" / "flower"
    x, y = digits()
    np.savez(folder / "test.npz", x=x[:400], y=y[:400])
    for index, name in enumerate(NAMES):
        mine = y[400:] * 3 // 10 == index
        np.savez(folder / f"{name}.npz", x=x[400:][mine], y=y[400:][mine])
    trial.types("operator", f"{INSTALL} '{wheel}[service]' --constraint {ROOT}/constraints.txt")
    trial.types(
        "members",
        f"{INSTALL.replace('try', 'flower')} flwr '{wheel}' --constraint {example}/constraints.txt",
    )
    trial.serves(port, "VEILSUM_OPERATOR_TOKEN=try-it")
    url = f"http://127.0.0.1:{port}"
    made = json.loads(
        trial.types("operator and admin", f"veilsum pilot pilot {MEMBERS} --token try-it --url {url} --json")
    )
    nodes = [
        {"identity": str(folder / "pilot" / name), "data": str(folder / f"{name}.npz")} for name in NAMES
    ]
    files = {"test": str(folder / "test.npz"), "output": str(folder / "calibrated.npz"), "nodes": nodes}
    named = {"cohort": made["cohort"], "extractor": made["extractor"], "admin-key": made["federation"]}
    (folder / "settings.json").write_text(json.dumps({"url": url, **named, **files}))
    said = trial.types(
        "members",
        f"VEILSUM_OPERATOR_TOKEN=try-it flower/bin/python {example}/local.py settings.json",
    )
    outcome: dict[str, Any] = json.loads(said.splitlines()[-1])
    if (outcome["heads"], outcome["counted"]) != (1, 3) or outcome["calibrated"] < 0.85:
        raise SystemExit(said)
    trial.verifies()
    return {
        "accuracy before": round(outcome["trained"], 3),
        "accuracy with the head": round(outcome["calibrated"], 3),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, help="where the figures go")
    parser.add_argument("--page", type=Path, help="print the page of these figures, and run nothing")
    args = parser.parse_args()
    if args.page is not None:
        sys.stdout.write(page(json.loads(args.page.read_text("utf-8"))))
        return 0
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch, bucket_served() as bucket:
        words = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", scratch, str(ROOT)]
        subprocess.run([sys.executable, *words], check=True)
        [built] = Path(scratch).glob("*.whl")
        wheel = f"{built}"
        for title, run, more in (
            ("One machine", alone, ()),
            ("An operator with two replicas", replicas, (bucket,)),
            ("From Flower", flower, ()),
        ):
            folder = Path(scratch) / run.__name__
            folder.mkdir()
            hidden = {wheel: "veilsum", f" --constraint {ROOT}/constraints.txt": "", str(folder) + "/": ""}
            hidden |= {f" --constraint {ROOT}/examples/flower/constraints.txt": "", f"{ROOT}/": ""}
            trial = Trial(folder, hidden)
            sys.stdout.write(f"\n{title}\n")
            try:
                outcome = run(trial, wheel, *more)
            finally:
                trial.end()
            found.append({"trial": title, "steps": trial.steps, "outcome": outcome})
    figures = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "load": os.getloadavg()[0], "trials": found}
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(figures, indent=2) + "\n")
    return 0 if all(kept for each in found for _, kept in promises(each)) else 1


def promises(trial: dict[str, Any]) -> list[tuple[str, bool]]:
    """What was promised of a trial, and whether it held: the commands of all persons, and the time of all."""
    typed = [step for step in trial["steps"] if "who" in step]
    each = Counter(person for step in typed for person in step["who"].split(" and "))
    seconds = sum(step["seconds"] for step in typed)
    return [
        (
            f"{len(typed)} commands, {COMMANDS} at the most, {each.most_common(1)[0][1]} of them by the busiest person",
            len(typed) <= COMMANDS,
        ),
        (f"{seconds:.0f} s, {SECONDS} at the most", seconds <= SECONDS),
    ]


BEFORE = {
    "One machine": "They have a PyTorch model, features that it made, and nothing of ours.",
    "An operator with two replicas": (
        "They have a PostgreSQL server, a bucket, certificates, and the settings of these in `coordinator.env`. Both replicas are "
        "processes behind one port of one machine, and share the key in its data folder; to spread them over several, an operator "
        "adds one `VEILSUM_COORDINATOR_KEY` to those settings, starts one on each, and a proxy before them. It ends with the verified head, as an operator's part does: putting it into a model is the last command above. Nobody "
        "types what stands in brackets, and it is not counted."
    ),
    "From Flower": (
        "They have the two apps of `examples/flower`, each node's records, and write what the fourth command printed into "
        "`settings.json`. The last command but one trains with Flower, calibrates, and puts the head into the network."
    ),
}


def page(figures: dict[str, Any]) -> str:
    """The page of a run's figures."""
    machine = "on two cores that others kept busy" if figures["load"] > 2 else "on two cores and nothing else"
    lines = [
        "# Tried with a clock",
        "",
        "From an empty folder to a head in a model, as a new user goes: each command below was run by a shell as it stands, and what",
        f"it printed was looked at. `make trial` does it again. These times are of {figures['date']}, {machine}",
        f"(load {figures['load']:.1f}); a time is how long until the next command could be typed, and includes waiting",
        "for the others. `pip install` took a wheel of this clone by its path, and fetched the rest from an index nearby. Until a first",
        "release is published, so does whoever tries it: the wheel's path, or the clone's, takes the place of `veilsum`. What is counted is",
        "every command of everybody, members too.",
    ]
    for trial in figures["trials"]:
        lines += [
            "",
            f"## {trial['trial']}",
            "",
            BEFORE[trial["trial"]],
            "",
            "| who | command | s | of which processor |",
            "|---|---|---:|---:|",
        ]
        for step in trial["steps"]:
            if "event" in step:
                lines.append(f"| – | ({step['event']}) | – | – |")
                continue
            command = step["command"].replace("|", "\\|")
            lines.append(
                f"| {step['who']} | `{command}` | {step['seconds']:.1f} | {step.get('processor_s', '–')} |"
            )
        told = ", ".join(f"{name} {value}" for name, value in trial["outcome"].items())
        kept = "; ".join(f"{text}: {'kept' if held else '**not kept**'}" for text, held in promises(trial))
        lines += ["", f"{kept}. Outcome: {told}."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
