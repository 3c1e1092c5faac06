"""How an attempt's vector lies in its ring and is cut up, in either mode."""

from abc import ABC, abstractmethod

from protocol.causes import Cause
from protocol.errors import PeerFault
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

    def check_chunk(self, owner: str, index: int, digest: bytes, packed: Buffer, signed: bytes) -> None:
        """Refuse bytes that are not chunk `index` of what its owner signed, before they are stored (protocol §4.4).

        Args:
            owner: whose vector it is.
            index: which chunk of a vector.
            digest: SHA-256 of `packed`.
            packed: the bytes.
            signed: the digest that the owner signed.

        Raises:
            PeerFault: chunk-mismatch.
        """
        if digest != signed or not self.is_chunk(index, packed):
            expected = self.ring.packed_bytes(self.chunk_elements(index))
            raise PeerFault(
                Cause.CHUNK_MISMATCH,
                f"chunk {index} has {len(packed)} bytes of {expected}, not the digest that was signed, or bits after its last "
                "element",
                [owner],
            )
