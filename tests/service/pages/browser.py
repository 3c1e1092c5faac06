"""`make browser`: every page at two widths, light and dark, photographed and read by axe."""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.service.driver import Party
from tests.service.pages.gallery import hang
from tests.service.pages.looking import SCHEMES, WIDTHS, chromium, context_of, look
from tests.service.serving import TOKEN, running, served


async def survey(pictures: Path) -> dict[str, Any]:
    """Look at everything; the findings by page, width and scheme."""
    started, findings = time.monotonic(), dict[str, Any]()
    with tempfile.TemporaryDirectory() as folder:
        async with running(Path(folder) / "data") as server, served(server) as address, chromium() as browser:
            pages = (await hang(server, Party(tuple(f"m-{index}" for index in range(6))))).pages()
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
                            if signed_in and name not in {"round-running", "result", "audit"}:
                                continue
                            shown = f"{name}{'-operator' if signed_in else ''}-{width_name}-{scheme}"
                            page = await context.new_page()
                            found = await look(page, address + path, pictures / f"{shown}.png")
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
