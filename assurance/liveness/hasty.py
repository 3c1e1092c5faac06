"""`uvicorn service.app:app`, with attempts of a minute instead of an hour."""

from service.coordination import coordinator

coordinator.HOUR_S = 1

from service.app import app  # noqa: E402

__all__ = ["app"]
