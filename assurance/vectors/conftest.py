from tests.support.remembered import remembered

__all__ = ["remembered"]
