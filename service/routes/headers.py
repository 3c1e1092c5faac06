"""What every answer tells browsers and caches, unless it says otherwise itself."""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

ALWAYS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; base-uri 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
OVER_TLS = {"strict-transport-security": "max-age=31536000; includeSubDomains"}


class Headers:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in (ALWAYS | (OVER_TLS if scope["scheme"] == "https" else {})).items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, sent)
