"""Pages that are made once for all who are not signed in."""

import time
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response

from service.access.guards import GuardedRoute, coordinator_of
from service.cache import Recent

KEPT_S = 1.0
"""How long a page stands at the most: other processes' changes are seen by then, and so are ages and counts."""
KEPT_BYTES = 4 << 20

KeptPages = Recent[str, tuple[int, float, Response]]
"""By address: at which change, and until when."""


class KeptRoute(GuardedRoute):
    """A page's route: whoever is not signed in gets the page that was made last, until something changes here, or for `KEPT_S`."""

    def answering(
        self, inner: Callable[[Request], Coroutine[Any, Any, Response]]
    ) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        async def answer(request: Request) -> Response:
            if request.method != "GET" or "cookie" in request.headers:
                return await inner(request)
            pages: KeptPages = request.app.state.pages
            address, changes = str(request.url), coordinator_of(request).changes
            found = pages.get(address)
            if found is not None and found[0] == changes and time.monotonic() < found[1]:
                return found[2]
            response = await inner(request)
            if response.status_code == 200:
                pages.put(address, (changes, time.monotonic() + KEPT_S, response), len(response.body))
            return response

        return answer
