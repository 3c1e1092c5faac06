"""What the documentation site makes when it is built: references from the code, dark drawings, pages from beside docs/."""

import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer.main import get_command

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]

BESIDE = {
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "assurance/ASVS.md": "project/asvs.md",
    "assurance/model/README.md": "project/model.md",
    "benchmarks/README.md": "project/benchmarks.md",
    "deploy/README.md": "project/deploy.md",
    "examples/notebooks/three_members.ipynb": "tutorials/three-members.md",
    "research/reproduction.md": "project/reproduction.md",
    "service/pages/causes.md": "causes.md",
}
"""Pages that are kept elsewhere in the repository, and their places on the site."""

DARK = {
    "#ffffff": "#1e2129",
    "#0f172a": "#e2e8f0",
    "#475569": "#94a3b8",
    "#eff6ff": "#172554",
    "#2563eb": "#60a5fa",
    "#1d4ed8": "#93c5fd",
    "#fef2f2": "#450a0a",
    "#b91c1c": "#fca5a5",
    "#f0fdf4": "#052e16",
    "#15803d": "#86efac",
    "#ecfdf5": "#052e16",
    "#059669": "#6ee7b7",
    "#b45309": "#fcd34d",
    "#f8fafc": "#262a35",
}
"""Colours of drawings, and what stands for them on a dark page."""


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """Add the pages and drawings that are made."""
    from mkdocs.structure.files import File  # noqa: PLC0415 - tests of the references need no site

    made: dict[str, str] = {
        "reference/commands.md": commands_page(),
        "reference/rest.md": rest_page(),
        **{site: page_of(ROOT / source) for source, site in BESIDE.items()},
        **{
            f"drawings/{path.stem}.dark.svg": darkened(path.read_text("utf-8"))
            for path in [*(ROOT / "docs" / "drawings").glob("*.svg"), ROOT / "docs" / "flow.svg"]
        },
    }
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    return files


def page_of(path: Path) -> str:
    """Read a page that is kept beside docs/; a notebook's cells become text and code."""
    text = path.read_text("utf-8")
    if path.suffix != ".ipynb":
        return text
    cells = [(each["cell_type"], "".join(each["source"])) for each in json.loads(text)["cells"]]
    return "\n\n".join(
        source if kind == "markdown" else f"```python\n{source}\n```" for kind, source in cells
    )


def on_page_markdown(markdown: str, *, page: "Page", config: "MkDocsConfig", files: "Files") -> str:
    """Links as the repository has them, turned to where the site has the page."""
    del config, files
    place = page.file.src_uri
    source = {site: source for source, site in BESIDE.items()}.get(place, f"docs/{place}")
    return relinked(markdown, source, place)


def relinked(markdown: str, source: str, place: str) -> str:
    """Links of a page at `source` in the repository that stands at `place` on the site."""

    def turned(match: re.Match[str]) -> str:
        path, anchor = match["path"], match["anchor"] or ""
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        on_site = BESIDE.get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else None)
        if on_site is None:
            return match["text"] + (f" (`{target}`)" if match["text"].strip("`") != target else "")
        return f"[{match['text']}]({posixpath.relpath(on_site, posixpath.dirname(place) or '.')}{anchor})"

    return re.sub(
        r"(?<!!)\[(?P<text>[^\]]+)\]\((?!https?:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)]*)?\)", turned, markdown
    )


def darkened(drawing: str) -> str:
    """The same drawing for a dark page."""
    return re.sub(r"#[0-9a-f]{6}", lambda match: DARK.get(match[0], match[0]), drawing)


def commands(command: Any, path: tuple[str, ...] = ("veilsum",)) -> Iterator[tuple[str, Any]]:
    """Every command with its name in full, groups before what is in them."""
    yield " ".join(path), command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


def commands_page() -> str:
    """A heading for each command, and one for each of its options."""
    from veilsum.cli.app import app  # noqa: PLC0415 - the site's own imports come first

    lines = ["# Commands", "", "Made from the code: `veilsum COMMAND --help` says the same.", ""]
    for name, command in commands(get_command(app)):
        anchor = name.replace(" ", "-")
        lines += [f"## {name} {{ #{anchor} }}", "", _unwrapped(command.help or ""), ""]
        if getattr(command, "commands", None):
            continue
        for parameter in command.params:
            if parameter.param_type_name == "argument":
                lines += [
                    f"#### `{(parameter.metavar or parameter.name).upper()}` {{ #{anchor}-{parameter.name} }}",
                    "",
                ]
            else:
                shown = ", ".join(f"`{option}`" for option in (*parameter.opts, *parameter.secondary_opts))
                lines += [f"#### {shown} {{ #{anchor}-{parameter.name} }}", ""]
            lines += [_about(parameter), ""]
    return "\n".join(lines)


def _about(parameter: Any) -> str:
    parts = [_unwrapped(parameter.help or "")]
    if parameter.required:
        parts.append("*Required.*")
    default = getattr(parameter, "show_default", None)
    if isinstance(default, str):
        parts.append(f"Default: {default}.")
    elif (
        parameter.default not in (None, ())
        and parameter.default is not False
        and not callable(parameter.default)
        and not parameter.required
    ):
        parts.append(f"Default: `{parameter.default}`.")
    if getattr(parameter, "multiple", False):
        parts.append("May be repeated.")
    if parameter.envvar:
        parts.append(f"From the environment: `{parameter.envvar}`.")
    return " ".join(part for part in parts if part)


def rest_page() -> str:
    """A heading for each route, with what it answers and refuses."""
    from service.app import create_app  # noqa: PLC0415 - as above
    from service.settings import Settings  # noqa: PLC0415 - as above

    document = create_app(Settings()).openapi()
    lines = [
        "# REST",
        "",
        "Made from the application, whose `/openapi.json` has every model. Refusals are",
        "",
    ]
    lines[-2] += " problems (RFC 9457), each with a [cause](../causes.md)."
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            lines += [
                f"## {method.upper()} {path}",
                "",
                _unwrapped(operation.get("description") or operation["summary"]),
                "",
            ]
            if parameters := operation.get("parameters"):
                lines += ["| parameter | in | |", "|---|---|---|"]
                lines += [
                    f"| `{each['name']}` | {each['in']} | {'required' if each.get('required') else ''} |"
                    for each in parameters
                ]
                lines.append("")
            lines += ["| status | |", "|---|---|"]
            lines += [
                f"| {status} | {_linked(answer.get('description', '')) if status >= '400' else answer.get('description', '')} |"
                for status, answer in operation["responses"].items()
            ]
            lines.append("")
    return "\n".join(lines)


def _linked(causes: str) -> str:
    page = (ROOT / "service" / "pages" / "causes.md").read_text("utf-8")
    known = set(re.findall(r"^## (.+)$", page, re.MULTILINE))
    return ", ".join(
        f"[{each}](../causes.md#{each})" if each in known else each for each in causes.split(", ")
    )


def _unwrapped(text: str) -> str:
    """Docstrings are cut by hand; each paragraph becomes one line."""
    paragraphs = re.split(r"\n\s*\n", text.replace("\f", "").strip())
    return "\n\n".join(" ".join(each.split()) for each in paragraphs).replace("<", "&lt;")
