from tests.service.conftest import databases, endpoint, servers

__all__ = ["databases", "endpoint", "servers"]
