"""The admin's signing key, the drafts of rosters and studies, which people edit and the admin signs, and signed files."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from veilsum.cli import names
from veilsum.cli.membership import newest_studies
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.forms import Hex32, first_fault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import Entry, Roster, Study, parse_message
from veilsum.protocol.messages.cohort import MAX_NAME
from veilsum.protocol.rest import MemberId
from veilsum.protocol.study import Content, read_content
from veilsum.study.draft import parse_draft
from veilsum.system.files import make_private
from veilsum.system.key_files import ADMIN_KEY, create_key, load_key

if TYPE_CHECKING:
    from client_sdk.operator import Operator


def create_admin(folder: Path) -> SigningKey:
    """Create a signing key in a folder of mode 0700. Raises Misuse if the folder holds a key."""
    make_private(folder)
    if not create_key(folder / ADMIN_KEY):
        raise Misuse(f"{folder} holds a key already: choose another folder")
    return load_admin(folder)


def load_admin(folder: Path) -> SigningKey:
    """Load the signing key. Raises Misuse if it is missing, damaged or readable by others."""
    path = folder / ADMIN_KEY
    if not path.is_file():
        raise Misuse(f"{folder} holds no key: make one with `veilsum admin new {folder}`")
    return load_key(path)


def _check_length(name: str) -> str:
    if (length := len(name.encode())) > MAX_NAME:
        raise ValueError(f"got {length} bytes in UTF-8, expected at most {MAX_NAME}")
    return name


class Draft(BaseModel):
    """A roster before it is signed, as in its JSON file, with keys and digests in hexadecimal.

    Attributes:
        number: increases with every change.
        study_key: public key that signs studies; None for the admin's.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    number: Annotated[int, Field(ge=1, lt=1 << 64, strict=True)]
    name: Annotated[str, AfterValidator(_check_length)] = ""
    coordinator: Hex32
    study_key: Hex32 | None = None
    members: dict[MemberId, Hex32] = {}
    decryptors: list[MemberId] = []
    readers: list[MemberId] = []
    revoked: list[Hex32] = []

    @classmethod
    def load_draft(cls, path: Path) -> Self:
        """Read a draft. Raises Misuse if the file is invalid."""
        try:
            return cls.parse_draft(
                json.loads(path.read_text("utf-8"), object_pairs_hook=_refuse_repeats), str(path)
            )
        except (ValueError, RecursionError) as error:
            raise Misuse(f"{path} is not a roster's draft: {error}") from error

    @classmethod
    def parse_draft(cls, values: Any, what: str) -> Self:
        """Build a draft from its fields. Raises Misuse, which names the first invalid field."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise Misuse(f"{what}: {first_fault(error, 'the draft')}") from error

    def save_draft(self, path: Path) -> None:
        """Write the draft atomically."""
        fresh = path.with_name(f".{path.name}.new")
        fresh.write_text(self.model_dump_json(indent=2) + "\n", "utf-8")
        fresh.replace(path)

    def sign_roster(self, admin: SigningKey) -> Roster:
        """Sign the roster. Raises Misuse or PeerFault if the draft is invalid."""
        if self.coordinator in {admin.public.hex(), self.study_key}:
            raise Misuse(
                "the coordinator's key is also the admin's or the study key: the coordinator must not choose what is summed"
            )
        roster = Roster.make_signed(
            admin,
            number=self.number,
            name=self.name,
            federation=admin.public,
            coordinator=bytes.fromhex(self.coordinator),
            study_key=admin.public if self.study_key is None else bytes.fromhex(self.study_key),
            members=tuple(Entry(name, bytes.fromhex(key)) for name, key in sorted(self.members.items())),
            decryptors=tuple(sorted(set(self.decryptors))),
            readers=tuple(sorted(set(self.readers))),
            revoked=tuple(sorted({bytes.fromhex(digest) for digest in self.revoked})),
        )
        roster.check_fields()
        return Roster.from_bytes(roster.to_bytes())


def revise_draft(
    draft: Draft | None,
    *,
    name: str | None = None,
    coordinator: str | None = None,
    study_key: str | None = None,
    members: Sequence[str] = (),
    remove: Sequence[str] = (),
    decryptors: Sequence[str] = (),
    readers: Sequence[str] = (),
    revoked: Sequence[str] = (),
) -> Draft:
    """Change a draft, or start one. Its number increases if anything changes."""
    named = _parse_entries(members)
    before: dict[str, Any] = draft.model_dump() if draft else {"number": 0, "members": {}}
    if not (coordinator or draft):
        raise Misuse("a roster names the coordinator's key: pass --coordinator or --url")
    strangers = set(remove) - (set(before["members"]) | set(named))
    if strangers:
        raise Misuse(f"--remove {', '.join(sorted(strangers))}: no such member in the draft")

    def list_remaining(field: str, added: Sequence[str]) -> list[str]:
        there = [item for item in (*before.get(field, ()), *added) if item not in remove]
        return list(dict.fromkeys(there))

    after = {
        "number": before["number"],
        "name": before.get("name", "") if name is None else name,
        "coordinator": names.public_key(coordinator) if coordinator else before["coordinator"],
        "study_key": names.public_key(study_key) if study_key else before.get("study_key"),
        "members": {
            each: key for each, key in sorted({**before["members"], **named}.items()) if each not in remove
        },
        "decryptors": list_remaining("decryptors", decryptors),
        "readers": list_remaining("readers", readers),
        "revoked": list_remaining("revoked", [names.digest(each) for each in revoked]),
    }
    if after != before:
        after["number"] += 1
    return Draft.parse_draft(after, "the roster")


def _parse_entries(members: Sequence[str]) -> dict[str, str]:
    named: dict[str, str] = {}
    for entry in members:
        name, found, key = entry.partition("=")
        if not found:
            raise Misuse(f"--member {entry}: expected ID=PUBLICKEY")
        if name in named:
            raise Misuse(f"--member {name} is given twice")
        named[name] = key
    return named


def _refuse_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):  # JSON would silently keep the last one, which for a member is another key
        twice = sorted({name for name, _ in pairs if [n for n, _ in pairs].count(name) > 1})
        raise ValueError(f"{', '.join(twice)} is given twice")
    return values


def read_study_draft(path: Path) -> Content:
    """Read a study's draft. Raises Misuse if the file is missing, not text, or as `parse_draft`."""
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError as error:
        raise Misuse(f"{path} does not exist: write it with `veilsum admin study new {path}`") from error
    except (OSError, ValueError) as error:
        raise Misuse(f"can't read {path}: {error}") from error
    return parse_draft(text, str(path))


def find_size_faults(client: "Operator", federation: str) -> list[str]:
    """Return which published studies can't run with the newest roster, because it has too many or too few members."""
    listed, faults = len(client.roster(federation).members), list[str]()
    for view in newest_studies(client.studies(federation)):
        question = read_content(client.study(federation, view.study).content).question
        if listed > question.members_max:
            limit, remedy = f"at most {question.members_max}", "a higher members_max"
        elif listed < question.members_min:
            limit, remedy = f"at least {question.members_min}", "a lower members_min"
        else:
            continue
        faults.append(
            f"the roster has {listed} members, and study {view.name} takes {limit}, so it can't run: publish a version of the study with {remedy}, "
            "or another roster"
        )
    return faults


def signed_path(draft: Path, output: Path | None = None) -> Path:
    """Return the file for a signed draft. Raises Misuse if it is the draft itself."""
    target = output or draft.with_suffix(".bin")
    if target.resolve() == draft.resolve():
        raise Misuse(f"{target} is the draft itself: choose another file")
    return target


def read_signed(path: Path) -> Roster | Study:
    """Read a signed roster or study. Raises Misuse for any other file."""
    try:
        found = parse_message(path.read_bytes())
        if isinstance(found, Roster | Study):
            return found
        why = f"it holds a message {type(found).__name__}"
    except PeerFault as fault:
        why = fault.detail
    raise Misuse(f"{path} is neither a signed roster nor a signed study: {why}")
