import re
from collections.abc import Callable

import pytest

from tests.support.pages import Page
from veilsum.cli.demo.facts import Facts
from veilsum.cli.demo.run import render_report


@pytest.fixture(scope="module")
def text(make_facts: Callable[..., Facts]) -> str:
    return render_report(make_facts())


def test_the_page_is_whole_and_tells_the_run(text: str) -> None:
    page = Page(text)
    for figure in ("70.0 %", "90.0 %", "75.0 %", "85.0 %", "3.2·10⁻⁸", "member-01", "member-03", "name-0"):
        assert figure in page.text, figure
    assert "veilsum demo --seed 7" in page.text
    assert re.search(r"a = \d+ colluding", page.text)
    assert "$" not in page.text


def test_it_needs_nothing_from_outside(text: str) -> None:
    page = Page(text)
    for tag, attributes in page.attributes:
        assert tag not in {"script", "link", "iframe"}
        for name in ("src", "href"):
            assert (attributes.get(name) or "data:").startswith("data:")
    assert not re.search(r"@import|url\(", text)


def test_it_can_be_read_without_seeing_it(text: str) -> None:
    page = Page(text)
    images = [attributes for tag, attributes in page.attributes if tag == "img"]
    assert len(images) == 4
    assert all(attributes["alt"] for attributes in images)
    assert ("html", {"lang": "en"}) in page.attributes
    tags = [tag for tag, _ in page.attributes]
    assert tags.count("h1") == tags.count("main") == 1
    assert tags.count("caption") == tags.count("table") == 4
    ids = {attributes["id"] for _, attributes in page.attributes if "id" in attributes}
    folded = [attributes for tag, attributes in page.attributes if tag == "details"]
    assert len(folded) == 7
    assert not any("open" in attributes for attributes in folded)
    labelled = {attributes.get("aria-labelledby") for tag, attributes in page.attributes if tag == "section"}
    assert labelled <= ids


def test_names_are_escaped(make_facts: Callable[..., Facts]) -> None:
    facts = make_facts(members=("<b>&", *make_facts().members[1:]), versions={"system": "<i>"})
    text = render_report(facts)
    assert "<b>" not in text
    assert "<i>" not in text
    assert "&lt;b&gt;&amp;" in text
