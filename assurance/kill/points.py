"""Points where the service makes something durable, found in its source, and those that no game reaches."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

from service.coordination.cohorts import Cohort
from veilsum.protocol.coordinator import PairingWindow
from veilsum.protocol.coordinator.statements import Answer
from veilsum.protocol.messages import Lost, Upload

SERVICE = Path(__file__).parents[2] / "service"
FILES: dict[str, tuple[str, ...]] = {
    "coordination.combining.combine_rounds": ("put of combined",),
    "coordination.jobs.Jobs._delete_disclosure": ("delete of results",),
    "coordination.documents.Documents.clear_leftovers": ("delete of results",),
    "coordination.documents.Documents.store_documents": ("put of transcripts", "put of results"),
    "coordination.garbage.Garbage._delete_files": ("delete of uploads", "delete of sums", "delete of events"),
    "coordination.garbage.delete_folders": ("delete of uploads", "delete of sums", "delete of events"),
    "coordination.journal.Journal._put_aside": ("put of events",),
    "coordination.journal.Journal.restore_announcement": ("put of events",),
    "coordination.summing.Summing._delete_blob": ("delete of sums",),
    "coordination.summing.Summing._replace_blob": ("put of sums",),
    "coordination.summing.Summing.store_chunk": ("put of uploads",),
    "coordination.readiness.checks_of.blobs": ("put of readiness", "delete of readiness"),
    "coordination.coordinator.Coordinator.store_heads": ("put of heads",),
    "coordination.sites.store_report": ("put of sites",),
    "routes.federations.put_canaries": ("put of canaries",),
}
"""Functions that write and delete files, with the labels of their points."""
COHORTS = {
    f"store of {change}"
    for change in (
        "a card",
        "a manifest",
        "a pairing",
        "the last pairing",
        "a further manifest",
        "a failed cohort",
    )
}
"""Labels of what a cohort stores until it is formed, by one function for all."""
EXCEPTIONS = {
    "commit of access.tokens.Tokens.create_first_token": "only where no token is configured; one that was shown and not kept opens nothing",
    "commit of coordination.federations.Federations.put_lost": "a single row, stored once and answered afterwards; no game has an attempt that "
    "its coordinator does not know",
    "commit of coordination.repairing.repair_database": "one transaction for each repair; the command is run again",
    "commit of coordination.journal.Journal.rewind": "a single event; without it the round still stalls, and is cancelled again",
    "commit of storage.audit.prune_entries": "only where old entries are pruned; each transaction moves the log's signed beginning with them",
    "put of heads": "stored before the round that names them by their digest, and answered afterwards",
    "put of canaries": "stored under the digest that a study names, and answered afterwards; the admin publishes again",
    "put of sites": "a site's report of a rehearsal, on which nothing rests; it is sent again with the next upload",
    "commit of storage.nonces.Nonces.use_nonce": "only a member's download of a sum stores a nonce; one that was not kept lets it be sent again",
}
"""Labels that no game reaches, and why that is acceptable."""
ON_SERVERS = {
    f"commit of coordination.scheduler.Leases.{name}"
    for name in ("_renew_lease", "_take_lease", "hold_lease")
}
"""Labels reached only by processes with a common database."""

LEFT_BEHIND = {
    "append of damaged",
    "commit of coordination.summing.Summing.begin_again",
    "commit of coordination.jobs._forget_some",
}
"""Labels reached only by a process that finds what was left before its start: damage, or the ciphertexts of a failed cohort."""


def label_change(
    cohort: Cohort, _now_s: float, window: PairingWindow | None, fault: object = None, _add: object = None
) -> list[str]:
    """Return a label of what a cohort is about to store; `COHORTS` lists them."""
    before = 0 if cohort.window is None else cohort.window.number
    if fault is not None:
        change = "a failed cohort"
    elif window is None:
        change = "a card"
    elif window.number > before:
        change = "a further manifest" if before else "a manifest"
    else:
        change = "the last pairing" if window.is_complete else "a pairing"
    return [f"store of {change}"]


def commits() -> set[str]:
    """Return a label for each function that writes to the database."""
    return {f"commit of {module}.{_worker(name, call)}" for module, name, call in _calls() if _commits(call)}


def writers() -> set[str]:
    """Return the functions that put or delete files."""
    return {f"{module}.{name}" for module, name, call in _calls() if _writes(call)}


def appends() -> set[str]:
    """Return a label for each kind of event, and of message, in a round's journal."""
    kinds = {
        str(call.args[1].value)
        for *_, call in _calls()
        if _called(call) == "Event" and len(call.args) > 1 and isinstance(call.args[1], ast.Constant)
    }
    messages = {form.__name__ for form in (*get_args(Answer), Upload, Lost)}
    return {f"append of {kind}" for kind in (kinds - {"message"}) | messages}


def reachable() -> set[str]:
    """Return every label that a game must reach."""
    files = {label for labels in FILES.values() for label in labels}
    return (commits() | files | appends() | COHORTS) - set(EXCEPTIONS)


@cache
def _calls() -> tuple[tuple[str, str, ast.Call], ...]:
    """Return the service's calls, each with the module and the function that it stands in."""

    def visit(node: ast.AST, names: tuple[str, ...]) -> Iterator[tuple[str, ast.Call]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield from visit(child, (*names, child.name))
                continue
            if isinstance(child, ast.Call):
                yield ".".join(names), child
            yield from visit(child, names)

    return tuple(
        (".".join(path.relative_to(SERVICE).with_suffix("").parts), *found)
        for path in sorted(SERVICE.rglob("*.py"))
        if "migrations" not in path.parts
        for found in visit(ast.parse(path.read_text("utf-8")), ())
    )


def _commits(call: ast.Call) -> bool:
    """Whether a call is `write` of the database."""
    return isinstance(call.func, ast.Attribute) and call.func.attr == "write" and _of(call.func) == "database"


def _worker(name: str, call: ast.Call) -> str:
    """Return the function that a call of `write` is labelled by: the one that asks, or the module's that `partial` is applied to."""
    match call.args[0]:
        case ast.Call(func=ast.Name(id="partial"), args=[ast.Name(id=worker), *_]):
            return worker
    return name


def _of(function: ast.Attribute) -> str:
    """Return the last name of the object whose method is called."""
    owner = function.value
    name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
    return name.lstrip("_")


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _writes(call: ast.Call) -> bool:
    """Whether a call puts or deletes blobs, directly or in a thread."""
    return any(
        isinstance(each, ast.Attribute) and each.attr in {"put", "delete"} and _of(each) == "blobs"
        for each in (call.func, *call.args)
    )
