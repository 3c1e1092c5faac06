"""The page of a rehearsal: which sites are ready, for operators."""

import hashlib
from importlib.metadata import version

import httpx
import numpy as np

from tests.service.pages.gallery import words
from tests.support.party import Party
from tests.support.serving import TOKEN, Server
from veilsum.protocol.messages import Study
from veilsum.protocol.rest import SITE_PATH, SiteReport
from veilsum.protocol.study import Rehearsal
from veilsum.study.canaries import CanaryPack


async def test_operators_see_which_sites_are_ready(
    server: Server, party: Party, visitor: httpx.AsyncClient
) -> None:
    await party.found(server)
    pack = CanaryPack(["canary-1"], ["class-0"], np.ones((1, party.dim))).to_bytes()
    named = Rehearsal(pack=hashlib.sha256(pack).hexdigest(), tolerance=0.01)
    plain = party.make_content(server.clock(), version=2)
    content = plain.model_copy(update={"rehearsal": named}).to_bytes()
    study = Study.make_signed(party.admin, federation=party.admin.public, content=content)
    assert (await party.try_study(server, study)).status_code == 201
    opened = await party.try_cohort(server, study=study.hash.hex(), period="rehearsal-1")
    cohort = opened.json()["cohort"]
    for member, slips in (("m-0", ()), ("m-1", ("bgr",))):
        report = SiteReport(
            release=version("veilsum"),
            sent_s=server.clock(),
            free_bytes=1 << 40,
            slips=slips,
            difference=0.4 if slips else 0.001,
            detail="<b>BGR</b>" if slips else "",
        )
        async with server.signing(member, party.keys[member]) as client:
            path = SITE_PATH.format(cohort=cohort, member=member)
            assert (await client.put(path, json=report.model_dump())).status_code == 204
    assert "Canaries differ" not in words((await visitor.get(f"/cohorts/{cohort}")).text)
    await visitor.post("/sign-in", data={"token": TOKEN})
    page = (await visitor.get(f"/cohorts/{cohort}")).text
    shown = words(page)
    assert "m-0 yes 0.001" in shown
    assert "m-1 no" in shown
    assert "0.4, bgr" in shown
    assert "m-2 no" not in shown.split("Members")[0]  # enrolment goes on: it may still come
    assert "<b>BGR" not in page
    other = await party.try_cohort(server, study=study.hash.hex(), period="2026-11")
    assert 'id="sites"' not in (await visitor.get(f"/cohorts/{other.json()['cohort']}")).text
