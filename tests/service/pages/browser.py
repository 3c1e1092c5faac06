"""`make browser`: every page at two widths, light and dark, photographed and checked by axe, and operators' tasks by keyboard."""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from playwright.async_api import Page

from tests.service.pages.gallery import exhibitor, hang
from tests.service.pages.looking import SCHEMES, WIDTHS, chromium, context_of, look, reach
from tests.support.serving import TOKEN, running, served

OPERATORS = frozenset(
    {"round-running", "result", "audit", "federation", "cohort-formed", "cohort-pairing", "cohort-enrolling"}
)
"""Pages that show more to signed-in users, or are hidden from others."""


async def extending(page: Page) -> None:
    """Extend a round as an operator."""
    await reach(page.get_by_label("Additional minutes"))
    await page.keyboard.type("1")
    await reach(page.get_by_role("button", name="Extend"))


async def extended(page: Page) -> None:
    """Check that the extension is shown."""
    before = await page.locator(".clock time").first.text_content()
    await extending(page)
    await page.keyboard.press("Enter")
    await page.wait_for_function(
        "before => document.querySelector('.clock time').textContent !== before", arg=before
    )
    await reach(page.get_by_role("group", name="Members and phases"))


async def reading_the_log(page: Page) -> None:
    """Read the audit log as an operator."""
    await reach(page.get_by_role("group", name="Entries"))


BY_KEYBOARD: dict[str, tuple[str, Callable[[Page], Awaitable[None]]]] = {
    "extending": ("round-running", extending),
    "extended": ("round-running", extended),
    "audit": ("audit", reading_the_log),
}


async def survey(pictures: Path) -> dict[str, Any]:
    """Look at everything; return the findings by page, width and scheme."""
    started, findings = time.monotonic(), dict[str, Any]()
    with tempfile.TemporaryDirectory() as folder:
        async with running(Path(folder) / "data") as server, served(server) as address, chromium() as browser:
            pages = (await hang(server, exhibitor())).pages()
            pages = {**pages, "audit": "/audit"}
            for width_name, width in WIDTHS.items():
                for scheme in SCHEMES:
                    context = await context_of(browser, width, scheme)
                    for signed_in in (False, True):
                        if signed_in:
                            page = await context.new_page()
                            await page.goto(address + "/sign-in")
                            await page.get_by_label("Operator's token").fill(TOKEN)
                            await page.get_by_role("button", name="Sign in").click()
                            await page.get_by_role("button", name="Sign out").wait_for()
                            await page.close()
                        for name, path in pages.items():
                            if signed_in and name not in OPERATORS:
                                continue
                            shown = f"{name}{'-operator' if signed_in else ''}-{width_name}-{scheme}"
                            page = await context.new_page()
                            found = await look(page, address + path, pictures / f"{shown}.png")
                            findings[shown] = {"fine": found.fine, **vars(found)}
                            await page.close()
                    for name, (of, first) in BY_KEYBOARD.items():
                        shown = f"{name}-keyboard-{width_name}-{scheme}"
                        page = await context.new_page()
                        found = await look(page, address + pages[of], pictures / f"{shown}.png", first)
                        findings[shown] = {"fine": found.fine, **vars(found)}
                        await page.close()
                    await context.close()
    return {
        "pages": len(findings),
        "fine": sum(found["fine"] for found in findings.values()),
        "seconds": round(time.monotonic() - started, 1),
        "findings": findings,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    outcome = asyncio.run(survey(arguments.output.with_suffix("")))
    arguments.output.write_text(json.dumps(outcome, indent=1) + "\n")
    for name, found in outcome["findings"].items():
        if not found["fine"]:
            shown = json.dumps({key: value for key, value in found.items() if value}, indent=1)
            sys.stdout.write(f"{name} {shown}\n")
    sys.stdout.write(f"{outcome['fine']} of {outcome['pages']} pages are fine, in {outcome['seconds']} s\n")
    raise SystemExit(outcome["fine"] != outcome["pages"])


if __name__ == "__main__":
    main()
