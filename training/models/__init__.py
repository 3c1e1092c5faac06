"""Feature extractors f: (n, channels, height, width) -> (n, dim), always apart from the head above them."""

from training.models.config import ARCHITECTURES, ExtractorConfig
from training.models.layers import Extractor

__all__ = ["ARCHITECTURES", "Extractor", "ExtractorConfig"]
