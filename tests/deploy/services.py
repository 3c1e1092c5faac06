"""A service manager's work with our units, as far as possible without one: users, networks, credentials, manual restarts."""

import os
import shlex
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PYTHON = Path(f"/usr/bin/python{sysconfig.get_python_version()}")
"""An interpreter that every user may run; the environment's may be in a user's home folder."""


def lacking() -> str | None:
    """Return why separate users and networks aren't possible here; None if they are."""
    if os.geteuid() != 0:
        return "only root gives processes users and networks of their own"
    missing = [tool for tool in ("ip", "setpriv") if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} not installed"
    if not PYTHON.exists():
        return f"{PYTHON} is not there, and other users may not run this environment's"
    probe = subprocess.run(["ip", "netns", "exec", "none", "true"], capture_output=True, check=False)
    made = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    return "network namespaces can't be made here" if made.returncode or not probe.returncode else None


def settings_of(*texts: str) -> dict[str, list[str]]:
    """Return a unit's settings, including drop-ins; an empty value resets earlier ones."""
    found: dict[str, list[str]] = {}
    for line in "\n".join(texts).splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found[name] = [*found.get(name, []), value] if value else []
    return found


@dataclass
class Network:
    """A host for each name, connected to the hub only. The hub has one address, which this machine reaches too.

    Args:
        prefix: of the namespaces' names.
    """

    prefix: str
    hosts: tuple[str, ...]
    address: str = "10.77.0.1"

    def __enter__(self) -> Self:
        for name in ("hub", *self.hosts):
            self._ip("netns", "add", self.of(name))
            self._ip("-n", self.of(name), "link", "set", "lo", "up")
        self._ip("-n", self.of("hub"), "addr", "add", f"{self.address}/32", "dev", "lo")
        for index, name in enumerate((*self.hosts, ""), 1):  # the last link is this machine's own
            end, far = f"to{index}", f"{self.prefix[-8:]}v{index}"
            theirs, within = (["netns", self.of(name)], ["-n", self.of(name)]) if name else ([], [])
            self._ip(
                *("link", "add", end, "netns", self.of("hub"), "type", "veth", "peer", "name", far, *theirs)
            )
            self._ip("-n", self.of("hub"), "addr", "add", f"10.77.{index}.1/30", "dev", end)
            self._ip("-n", self.of("hub"), "link", "set", end, "up")
            self._ip(*within, "addr", "add", f"10.77.{index}.2/30", "dev", far)
            self._ip(*within, "link", "set", far, "up")
            self._ip(*within, "route", "add", f"{self.address}/32", "via", f"10.77.{index}.1")
        return self

    def __exit__(self, *_: object) -> None:
        for name in ("hub", *self.hosts):  # what leads there goes with it
            self._ip("netns", "del", self.of(name))

    def of(self, name: str) -> str:
        """Return a host's namespace."""
        return f"{self.prefix}-{name}"

    @staticmethod
    def _ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True)


@dataclass
class Machine:
    """The file system and users that the units refer to, below a folder.

    Args:
        folder: all users must be able to enter it.
        network: the hosts.
    """

    folder: Path
    network: Network
    users: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        program = self.place("/opt/veilsum/bin/veilsum")
        program.parent.mkdir(parents=True)
        paths = f"{ROOT}:{sysconfig.get_path('purelib')}"
        program.write_text(f'#!/bin/sh\nPYTHONPATH={paths} exec {PYTHON} -B -m veilsum "$@"\n')
        program.chmod(0o755)
        for path in ("/etc/veilsum", "/var/lib", "/run/credentials"):
            self.place(path).mkdir(parents=True)

    def place(self, path: str) -> Path:
        """Return the real location of a path in the units."""
        return self.folder / path.lstrip("/")

    def home(self, user: str) -> Path:
        """Create a user and its home folder, mode 0700; return the folder."""
        self.users.setdefault(user, 61_000 + len(self.users))
        made = self.place(f"/var/lib/{user}")
        made.mkdir(mode=0o700, exist_ok=True)
        os.chown(made, self.users[user], self.users[user])
        return made

    def give(self, user: str, path: Path) -> Path:
        """Make a file readable by this user alone."""
        os.chown(path, self.users[user], self.users[user])
        path.chmod(0o600)
        return path

    def started(self, unit: str, host: str, log: Path, *drop_ins: str) -> subprocess.Popen[bytes]:
        """Start `name@instance.service` or `name.service` on a host, as its user, with the settings of the unit."""
        name, _, instance = unit.removesuffix(".service").partition("@")
        file = DEPLOY / (f"{name}@.service" if instance else unit)
        texts = [file.read_text(), *((DEPLOY / each).read_text() for each in drop_ins)]
        settings = settings_of(*(text.replace("%i", instance) for text in texts))
        [user], [state] = settings["User"], settings["StateDirectory"]
        assert self.home(state).exists()
        self.users[user] = self.users[state]
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self.home(state))}
        lines = [line for each in settings.get("Environment", ()) for line in shlex.split(each)]
        for each in settings.get("EnvironmentFile", ()):
            lines += self.place(each).read_text().splitlines()
        environment |= dict(line.split("=", 1) for line in lines)
        credentials = self.place(f"/run/credentials/{unit}")
        for each in settings.get("LoadCredential", ()):
            credential, _, source = each.partition(":")
            credentials.mkdir(exist_ok=True)
            self.give(user, Path(shutil.copy(self.place(source), credentials / credential)))
            environment["CREDENTIALS_DIRECTORY"] = str(credentials)
        [command] = settings["ExecStart"]
        for variable, value in environment.items():
            command = command.replace(f"${{{variable}}}", value)
        environment = {key: self._moved(value) for key, value in environment.items()}
        with log.open("ab") as output:
            words = [self._moved(word) for word in shlex.split(command)]
            return subprocess.Popen(
                self.as_user(user, host, words, environment),
                stdout=output,
                stderr=output,
                umask=int(settings["UMask"][0], 8),
            )

    def as_user(
        self, user: str, host: str, words: list[str], environment: dict[str, str] | None = None
    ) -> list[str]:
        """Return a command that runs as this user on that host, with no rights beyond the user's."""
        number = self.users[user]
        named = [f"{key}={value}" for key, value in (environment or {"PATH": "/usr/bin:/bin"}).items()]
        where = f"ip netns exec {self.network.of(host)} setpriv --reuid {number} --regid {number}"
        dropped = "--clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all"
        return [*where.split(), *dropped.split(), "env", "-i", *named, *words]

    def _moved(self, text: str) -> str:
        ours = ("/opt/veilsum", "/var/lib/veilsum", "/etc/veilsum")
        return f"{self.folder}{text}" if text.startswith(ours) else text
