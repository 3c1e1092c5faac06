from tests.service.conftest import endpoint, servers

__all__ = ["endpoint", "servers"]
