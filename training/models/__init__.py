"""Feature extractors f: (n, channels, height, width) -> (n, dim), always apart from the head above them."""

from training.models.base import Extractor
from training.models.config import ARCHITECTURES, ExtractorConfig

__all__ = ["ARCHITECTURES", "Extractor", "ExtractorConfig"]
