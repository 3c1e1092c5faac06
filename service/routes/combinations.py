"""Combinations: the sums of several periods added up."""

import asyncio

from fastapi import APIRouter, Response

from protocol import published, rest
from protocol.causes import Cause
from service import combining
from service.access.guards import GuardedRoute
from service.problems import declared
from service.routes.common import (
    ANYBODY,
    HEADS,
    ROUNDS,
    CombinationPath,
    Here,
    Hex32Path,
    in_pieces,
    octets_out,
)

router = APIRouter(tags=["combinations"], route_class=GuardedRoute)


@router.post(
    rest.COMBINATIONS,
    dependencies=ROUNDS.dependencies,
    status_code=201,
    responses=declared(
        *ROUNDS.causes, Cause.NOT_FOUND, Cause.WRONG_PHASE, Cause.TERMS_REFUSED, Cause.SUM_CHECK_FAILED
    ),
)
async def combine(
    federation: Hex32Path, request: published.CombineRequest, here: Here
) -> published.CombinedRecord:
    """Add up the exact sums of several periods of one question, and solve again (operator)."""
    return await here.combine(federation, request)


@router.get(rest.COMBINATIONS, dependencies=ANYBODY.dependencies, responses=declared(Cause.NOT_FOUND))
async def combinations(federation: Hex32Path, here: Here) -> published.CombinationIds:
    """A federation's combinations, those with the newest round first."""
    await here.federations.newest(federation)  # not-found for a stranger
    return published.CombinationIds(tuple(each.combination for each in await here.combinations(federation)))


@router.get(rest.COMBINATION, dependencies=ANYBODY.dependencies, responses=declared(Cause.NOT_FOUND))
async def combination(combination: CombinationPath, here: Here) -> published.CombinedRecord:
    """The signed record of a combination."""
    return await asyncio.to_thread(combining.stored_record, combination, here.blobs)


@router.get(
    rest.COMBINED_WEIGHTS,
    dependencies=HEADS.dependencies,
    response_class=Response,
    responses={
        **octets_out("tensors `weights` (l, C) and, with a bias, `bias` (C,)", rest.SAFETENSORS),
        **declared(*HEADS.causes, Cause.NOT_FOUND),
    },
)
async def weights(combination: CombinationPath, here: Here) -> Response:
    """The head's weights, float64, as safetensors."""
    return in_pieces(
        *await asyncio.to_thread(combining.stored_weights, combination, here.blobs), rest.SAFETENSORS
    )
