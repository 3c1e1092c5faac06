"""Statistics in the clear, to measure what masking costs. These routes are there only under `VEILSUM_UNMASKED_BENCHMARK`."""

import asyncio

from fastapi import APIRouter, Request, Response

from protocol import rest
from service.access.guards import GuardedRoute
from service.problems import not_found
from service.routes.common import (
    ANYBODY,
    MEMBER,
    ROUNDS,
    After,
    Here,
    Hex32Path,
    IndexPath,
    MemberPath,
    Octets,
    Wait,
)
from service.unmasked import Sums, Unmasked, UnmaskedRequest, UnmaskedView, folder_of

MAX_CHUNK_BYTES = 32 << 20
SUM = f"{rest.FEDERATION}/unmasked"
CHUNK = f"{SUM}/uploads/{{member}}/chunks/{{index}}"
RESULT = f"{SUM}/weights"

router = APIRouter(route_class=GuardedRoute, include_in_schema=False)


@router.post(SUM, dependencies=ROUNDS.dependencies, status_code=201)
async def begin(federation: Hex32Path, request: UnmaskedRequest, here: Here, asked: Request) -> UnmaskedView:
    """Begin a sum in the place of the last one (operator)."""
    await here.federations.newest(federation)
    await asyncio.to_thread(here.blobs.delete, folder_of(federation))
    found = _sums(asked)[federation] = Unmasked(federation, request, here.blobs)
    return found.view()


@router.put(CHUNK, dependencies=MEMBER.dependencies, max_body_size=MAX_CHUNK_BYTES)
async def put_chunk(
    federation: Hex32Path, member: MemberPath, index: IndexPath, body: Octets, asked: Request
) -> UnmaskedView:
    """Send float32 numbers as they are, chunk by chunk, in any order."""
    found = _sum(asked, federation)
    await found.store(member, index, body)
    return found.view()


@router.get(SUM, dependencies=ANYBODY.dependencies)
async def view(
    federation: Hex32Path, here: Here, asked: Request, after: After = -1, wait_s: Wait = 0.0
) -> UnmaskedView:
    """How far it has come; with `after` and `wait_s`, as soon as that changes."""
    found = _sum(asked, federation)
    await here.changed(found.watch, after, wait_s)
    return found.view()


@router.get(RESULT, dependencies=ANYBODY.dependencies)
async def weights(federation: Hex32Path, asked: Request) -> Response:
    """The head, as safetensors."""
    content = await asyncio.to_thread(_sum(asked, federation).weights)
    return Response(content, media_type=rest.SAFETENSORS)


def _sums(asked: Request) -> Sums:
    sums: Sums = asked.app.state.unmasked
    return sums


def _sum(asked: Request, federation: str) -> Unmasked:
    try:
        return _sums(asked)[federation]
    except KeyError:
        raise not_found("sum in the clear") from None
