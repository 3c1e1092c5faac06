"""In real Chromium: nothing that the policy forbids, nothing that axe finds, and a page that follows its round.

`make browser` does the first for every page, at two widths, light and dark.
"""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.async_api import expect

from service.http.callers import ADDRESS_ALLOWANCE, CALLER_ALLOWANCE, Limits
from tests.service.pages import looking
from tests.service.pages.gallery import exhibitor, hang
from tests.support.party import Party
from tests.support.serving import Server, running, served

KEEP_PLOT = """
let plot;
Object.defineProperty(window, "uPlot", {
  get: () => plot,
  set: (made) => { plot = class extends made { constructor(...given) { super(...given); window.drawn = this; } }; },
  configurable: true,
});
"""
EXTENT = "[drawn.scales.x.min, drawn.scales.x.max, drawn.data[0][0], drawn.data[0].at(-1)]"


@pytest.fixture(autouse=True)
def _chromium() -> None:
    if looking.CHROMIUM is None:
        if os.environ.get("CI_MUST_RUN") == "1":
            pytest.fail("chromium is not installed, and CI_MUST_RUN=1 lets nothing be skipped")
        pytest.skip("chromium is not installed")


@pytest.mark.slow
async def test_pages_are_fine_and_a_rounds_page_follows_it(server: Server) -> None:
    party = exhibitor()
    async with served(server) as address, looking.chromium() as browser:
        gallery = await hang(server, party)
        pages = gallery.pages()
        context = await looking.context_of(browser, looking.WIDTHS["phone"], "dark")
        await context.add_init_script(KEEP_PLOT)
        for name in (
            "rounds",
            "result",
            "federation",
            "cohort-formed",
            "cohort-pairing",
            "combination",
            "round-done",
        ):
            page = await context.new_page()
            found = await looking.look(page, address + pages[name])
            assert found.fine, (name, found)
            if name == "result":
                await expect(page.locator(".chart canvas")).to_be_visible()
                low, high, first, last = await page.evaluate(EXTENT)
                assert low > first / 2  # no empty decade beside the grid
                assert high < 2 * last
            await page.close()
        await context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = await context.new_page()
        await page.goto(address + pages["rounds"])
        await page.get_by_role("button", name=f"Copy round {gallery.running[:8]}").click()
        assert await page.evaluate("navigator.clipboard.readText()") == gallery.running
        page = await context.new_page()
        found = await looking.look(page, address + pages["round-running"])
        assert found.fine, found
        await expect(page.locator("[data-countdown]").first).to_have_text(looking.CLOCK)
        await page.get_by_role("link", name="Federation").or_(page.locator("#grid")).last.focus()
        for member in party.ids[3:]:
            await party.serve(server, gallery.running, member)
        await expect(page.locator(".now")).to_have_text("checking boxes")
        await expect(page.locator("#announcer")).to_have_text("ct-2026, sum: checking boxes")
        await expect(page.locator("#grid")).to_be_focused()
        plain = await looking.context_of(browser, looking.WIDTHS["desktop"], "light", scripts=False)
        page = await plain.new_page()
        await page.goto(address + pages["result"])
        await page.locator("summary").click()
        await expect(page.locator("#curve tbody tr").first).to_be_visible()
        await expect(page.locator(".chart")).to_be_hidden()
        await expect(page.locator("[data-copy]:not([hidden])")).to_have_count(0)  # they would do nothing


@pytest.mark.slow
async def test_the_longest_names_fit(server: Server) -> None:
    party = Party(
        tuple(f"hospital-{'w' * 53}-{index}" for index in range(6)),
        name="W" * 64,
        notes={"name": "s" * 64},
        periods="p" * 62 + "{}",
    )
    async with served(server) as address, looking.chromium() as browser:
        pages = (await hang(server, party)).pages()
        for width in looking.WIDTHS.values():
            context = await looking.context_of(browser, width, "light")
            page = await context.new_page()
            for name in ("rounds", "federation", "round-running", "cohort-formed", "cohort-pairing"):
                await page.goto(address + pages[name])
                wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
                assert wide <= 0, (name, width)


async def test_pages_without_a_stream_ask_by_themselves(tmp_path: Path, party: Party) -> None:
    """A cohort's page has none, and a round's may be refused."""
    async with (
        running(tmp_path, limits=Limits(CALLER_ALLOWANCE, replace(ADDRESS_ALLOWANCE, streams=0))) as server,
        served(server) as address,
        looking.chromium() as browser,
    ):
        await party.found(server)
        cohort = await party.open_cohort(server)
        await party.enrol(server, party.ids)
        page = await (await looking.context_of(browser, looking.WIDTHS["phone"], "light")).new_page()
        await page.clock.install()
        await page.goto(f"{address}/cohorts/{cohort}")
        await expect(page.locator("#cohort")).to_contain_text("Missing: m-0")
        await party.pair(server, "m-0")
        await page.clock.fast_forward(16_000)
        await expect(page.locator("#cohort")).to_contain_text("Missing: m-1")
        await expect(page.locator("dl.cards")).to_contain_text("1 of 6")
        await party.take_manifest(server)
        round_id = await party.open_round(server)
        async with page.expect_response("**/events") as refused:
            await page.goto(f"{address}/rounds/{round_id}")
        assert (await refused.value).status == 429
        await party.serve(server, round_id, party.ids[0])
        await expect(page.locator("#grid tbody")).not_to_contain_text("2/2")
        await page.clock.fast_forward(16_000)
        await expect(page.locator("#grid tbody")).to_contain_text("2/2")
