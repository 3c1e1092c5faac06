"""A real browser at a real server: what a person sees, and the faults that a machine finds."""

import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from playwright.async_api import Browser, BrowserContext, Locator, Page, async_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text("utf-8")
WIDTHS = {"phone": 390, "desktop": 1280}
CLOCK = re.compile(r"^(\d+:)?\d{1,2}:\d\d$")
Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """The machine's own browser."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        try:
            yield browser
        finally:
            await browser.close()


@dataclass
class Look:
    """One page as one kind of reader sees it.

    Attributes:
        complaints: messages on the browser's console: script errors, and violations of the content policy.
        violations: axe's findings, by rule.
        overflow_px: by how much the page is wider than its window.
        sideways: regions that scroll sideways on a phone.
    """

    complaints: list[str] = field(default_factory=list)
    violations: dict[str, list[str]] = field(default_factory=dict)
    overflow_px: int = 0
    sideways: list[str] = field(default_factory=list)

    @property
    def fine(self) -> bool:
        return not (self.complaints or self.violations or self.overflow_px > 0 or self.sideways)


async def context_of(
    browser: Browser, width: int, scheme: Scheme, *, scripts: bool = True, still: bool = True
) -> BrowserContext:
    return await browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        java_script_enabled=scripts,
        reduced_motion="reduce" if still else "no-preference",
    )


async def reach(target: Locator) -> None:
    """Go to an element by keyboard alone."""
    for _ in range(200):
        await target.page.keyboard.press("Tab")
        if await target.evaluate("node => node === document.activeElement"):
            return
    raise AssertionError(f"no key leads to {target}")


async def look(
    page: Page,
    address: str,
    picture: Path | None = None,
    first: Callable[[Page], Awaitable[None]] | None = None,
) -> Look:
    """Open a page, do something `first`, photograph it, and check it with axe."""
    found = Look()

    def heard(message: Any) -> None:
        # A refusal's page is a page, whatever its status.
        if message.type in {"error", "warning"} and "Failed to load resource" not in message.text:
            found.complaints.append(message.text)

    page.on("console", heard)
    page.on("pageerror", lambda error: found.complaints.append(str(error)))
    await page.goto(address, wait_until="load")
    await page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    if first is not None:
        await first(page)
    if picture is not None:
        picture.parent.mkdir(parents=True, exist_ok=True)
        await page.screenshot(path=picture, full_page=True)
    found.overflow_px = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
    if page.viewport_size is not None and page.viewport_size["width"] == WIDTHS["phone"]:
        found.sideways = await page.evaluate(
            "[...document.querySelectorAll('.scroll')].filter(each => each.scrollWidth > each.clientWidth + 1)"
            ".map(each => each.getAttribute('aria-label'))"
        )
    await page.evaluate(AXE)
    outcome = await page.evaluate(
        "axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']})"
    )
    found.violations = {
        violation["id"]: [node["html"][:200] for node in violation["nodes"][:3]]
        for violation in outcome["violations"]
    }
    return found
