"""The page of each cause: what a problem's `type` leads to, rendered from causes.md."""

import re
from functools import cache
from importlib.resources import files

from markdown_it import MarkdownIt
from markupsafe import Markup

from protocol.causes import Cause

_MARKDOWN = MarkdownIt("commonmark", {"html": False})


@cache
def advice() -> dict[str, Markup]:
    """What to do about each cause, as HTML."""
    text = (files(__package__) / "causes.md").read_text("utf-8")
    sections = re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    # Our own page of our own words, with HTML off.
    return {name: Markup(_MARKDOWN.render(_without_summary(body))) for name, body in sections}  # noqa: S704


def _without_summary(section: str) -> str:
    return section.strip().partition("\n\n")[2]


def cause_named(name: str) -> Cause | None:
    """The cause of a page; None where there is none."""
    try:
        return Cause(name)
    except ValueError:
        return None
