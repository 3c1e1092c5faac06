"""Operators' tokens."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request

from protocol import rest
from protocol.access import NewToken, TokenList, TokenRequest, TokenView
from protocol.causes import Cause
from service.access.guards import GuardedRoute
from service.access.tokens import Tokens
from service.problems import declared
from service.routes.common import ADMIN, Made, TheCaller

router = APIRouter(tags=["tokens"], route_class=GuardedRoute)


async def _tokens(request: Request) -> Tokens:
    tokens: Tokens = request.app.state.tokens
    return tokens


TheTokens = Annotated[Tokens, Depends(_tokens)]


@router.post(rest.TOKENS, dependencies=ADMIN.dependencies, status_code=201, responses=declared(*ADMIN.causes))
async def create(request: TokenRequest, tokens: TheTokens, made: Made) -> NewToken:
    """Make a token (operator, admin): its secret is in this answer, and nowhere else."""
    token = await tokens.create(request)
    made.append(f"token={token.token}")
    return token


@router.get(rest.TOKENS, dependencies=ADMIN.dependencies, responses=declared(*ADMIN.causes))
async def every(tokens: TheTokens) -> TokenList:
    """All tokens that were ever made, without their secrets (operator, admin)."""
    return TokenList(tokens=await tokens.views())


@router.post(
    rest.REVOKE,
    dependencies=ADMIN.dependencies,
    responses=declared(*ADMIN.causes, Cause.NOT_FOUND, Cause.CONFLICT),
)
async def revoke(
    token: Annotated[str, Path(pattern=rest.SHORT_ID_PATTERN)], tokens: TheTokens, caller: TheCaller
) -> TokenView:
    """End a token now (operator, admin)."""
    return await tokens.revoke(token, caller)
