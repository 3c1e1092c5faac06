"""How an attempt's vector lies in its ring and is cut up, in either mode."""

from abc import ABC, abstractmethod

from protocol.messages.opening import Terms
from protocol.packing import Buffer, is_packed
from protocol.ring import Ring


class Chunked(ABC):
    """An attempt whose terms fix a vector: its ring, and the chunks that it travels in."""

    @property
    @abstractmethod
    def terms(self) -> Terms:
        """The opening's."""

    @property
    def ring(self) -> Ring:
        """The ring of the terms."""
        return Ring(self.terms.ring_bits)

    @property
    def chunks(self) -> int:
        """Chunks in a vector."""
        return -(-self.terms.elements // self.terms.chunk_elements)

    def chunk_elements(self, index: int) -> int:
        """Elements of chunk `index`: all alike but for a shorter last."""
        terms = self.terms
        return min(terms.chunk_elements, terms.elements - index * terms.chunk_elements)

    def is_chunk(self, index: int, packed: Buffer) -> bool:
        """Whether chunk `index` may be these bytes: as many as it has, no bit set after its last element."""
        return is_packed(packed, self.terms.ring_bits, self.chunk_elements(index))
