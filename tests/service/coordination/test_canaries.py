"""Canary packs: stored if a published study names them, shown to members, compared with their digest on each read."""

import hashlib

import numpy as np

from service.coordination.canaries import pack_blob
from service.coordination.scrubbing import find_damaged_blobs
from tests.support.party import Party
from tests.support.refusals import refusal
from tests.support.serving import Server
from veilsum.protocol import rest
from veilsum.protocol.messages import Study
from veilsum.protocol.study import Rehearsal
from veilsum.study.canaries import CanaryPack


async def publish(server: Server, party: Party, *digests: str) -> None:
    """Publish a study that names each pack."""
    await party.found(server)
    for version, digest in enumerate(digests, 2):
        plain = party.make_content(server.clock(), version=version)
        content = plain.model_copy(update={"rehearsal": Rehearsal(pack=digest, tolerance=0.01)})
        study = Study.make_signed(party.admin, federation=party.admin.public, content=content.to_bytes())
        assert (await party.try_study(server, study)).status_code == 201


def make_pack(party: Party, dim: int) -> bytes:
    ids = [f"canary-{place}" for place in range(4)]
    keys = [f"class-{place % party.classes}" for place in range(4)]
    return CanaryPack(ids, keys, np.ones((4, dim)), inputs={"a.bin": bytes(1 << 20)}).to_bytes()


async def test_members_are_shown_the_pack_that_a_study_names(server: Server, party: Party) -> None:
    content, other = make_pack(party, party.dim), make_pack(party, party.dim + 1)
    digest, unfit = (hashlib.sha256(each).hexdigest() for each in (content, other))
    await publish(server, party, digest, unfit)
    path = rest.CANARIES_PATH.format(federation=party.federation, pack=digest)
    member = server.signing("m-0", party.keys["m-0"])
    assert refusal(await member.get(path)) == (404, "not-found")
    assert refusal(await server.client.put(path, content=other)) == (400, "malformed-request")
    for pack, sent, said in (
        (unfit, other, (400, "malformed")),
        (hashlib.sha256(b"").hexdigest(), b"", (404, "not-found")),
    ):
        where = rest.CANARIES_PATH.format(federation=party.federation, pack=pack)
        assert refusal(await server.client.put(where, content=sent)) == said
    for _ in range(2):
        assert (await server.client.put(path, content=content)).status_code == 204
    assert (await member.get(path)).content == content
    async with server.anonymous() as nobody:
        assert (await nobody.get(path)).content == content

    blobs, name = server.coordinator.blobs, pack_blob(party.federation, digest)
    blobs.put(name, content[:-1] + b"\x00\x00")
    assert refusal(await member.get(path)) == (500, "storage-damaged")

    async def pause(_size: int) -> None:
        pass

    coordinator = server.coordinator
    found = find_damaged_blobs(coordinator.database, blobs, coordinator.key.public, pause)
    assert [each async for each in found] == [name]
    assert (await server.client.put(path, content=content)).status_code == 204
    assert (await member.get(path)).content == content


async def test_a_member_measures_its_line(server: Server, party: Party) -> None:
    await party.found(server)
    path = rest.PROBE_PATH.format(federation=party.federation)
    member = server.signing("m-0", party.keys["m-0"])
    assert (await member.post(path, content=bytes(1 << 20))).status_code == 204
    large = await member.post(path, content=bytes(rest.MAX_PROBE_BYTES + 1))
    assert refusal(large) == (413, "oversized")
    assert (await server.client.post(path, content=b"x")).status_code == 401
