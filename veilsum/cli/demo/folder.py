"""The demo's output folder. A folder that holds anything else is never touched."""

import shutil
from collections.abc import Collection
from pathlib import Path

from veilsum.cli.demo.processes import DemoError

_MARK_FILE = ".veilsum-demo"


class Folder:
    """The output folder, absolute, and what is where in it."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.admin, self.coordinator = self.root / "admin", self.root / "coordinator"
        self.logs = self.root / "logs"
        self.extractor = self.root / "extractor.safetensors"
        self.calibrated = self.root / "calibrated.safetensors"  # the same under the calibrated head
        self.admin_key, self.result = self.root / "admin.pub", self.root / "result"
        self.summary, self.report = self.root / "summary.json", self.root / "report.html"

    @classmethod
    def claim_folder(cls, root: Path, inputs: Collection[Path] = ()) -> "Folder":
        """A folder of the demo's own: a new one, an empty one, or an earlier demo's, which is replaced. Files among `inputs` stay there.

        Raises:
            DemoError: it holds something else.
        """
        folder = cls(root)
        if folder.root.exists() and not folder.root.is_dir():
            raise DemoError(f"{root} is not a folder: choose another with --output")
        if folder.root.is_dir() and any(folder.root.iterdir()):
            if not (folder.root / _MARK_FILE).is_file():
                raise DemoError(
                    f"{root} holds files that no demo wrote, which are kept: choose another folder with --output"
                )
            _empty_folder(folder.root, {each.parent.resolve() / each.name for each in inputs})
        folder.root.mkdir(parents=True, exist_ok=True)
        # Written first: a run that fails half-way leaves a folder that the next one may replace.
        (folder.root / _MARK_FILE).write_text("Written by `veilsum demo`, which may replace this folder.\n")
        return folder

    def member_folder(self, member: str) -> Path:
        """A member's own folder: its identity, features and result."""
        return self.root / "members" / member

    def features_file(self, member: str) -> Path:
        return self.member_folder(member) / "features.npz"

    def remove_secrets(self) -> None:
        """Remove keys, features and the coordinator's data; results, heads, reports and logs stay."""
        for part in (self.admin, self.coordinator, self.root / "members"):
            shutil.rmtree(part, ignore_errors=True)


def _empty_folder(root: Path, kept: Collection[Path]) -> None:
    for entry in root.resolve().iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry not in kept:
            entry.unlink()
