"""Binary Merkle trees as in RFC 6962 §2.1, with the number of leaves bound into the root.

A tree of n > 1 leaves splits at the largest power of two below n. Equivalently, each level pairs neighbours, and a last node
without a neighbour moves up unchanged. Leaves, nodes and the root have separate tags, so none can pass for another. The root
hashes the count, so a path has only one reading.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256

from veilsum.protocol.errors import Misuse
from veilsum.protocol.tags import Tag, hash_fields

_COUNT_LIMIT = 1 << 64
_NODE_RIGHT = (32).to_bytes(8, "little")
_NODE_LEFT = Tag.MERKLE_NODE + _NODE_RIGHT
_LEAF_TAG = bytes(Tag.MERKLE_LEAF)


def leaf_hash(leaf: bytes) -> bytes:
    """Hash a leaf."""
    # hash_fields(Tag.MERKLE_LEAF, leaf), inlined as in `_hash_node`
    return sha256(_LEAF_TAG + len(leaf).to_bytes(8, "little") + leaf).digest()


class Tree:
    """A tree that keeps all levels, to produce many paths.

    Args:
        leaves: the leaves in order; may be an iterator. No leaves count as one empty leaf (wire: Hashes).
    """

    def __init__(self, leaves: Iterable[bytes]) -> None:
        level = [leaf_hash(leaf) for leaf in leaves] or [leaf_hash(b"")]
        self.count = len(level)
        self._levels = [level]
        while len(level) > 1:
            paired = [_hash_node(left, right) for left, right in zip(level[::2], level[1::2], strict=False)]
            level = paired + level[2 * len(paired) :]
            self._levels.append(level)
        self.root = _hash_root(self.count, level[0])

    def path_to(self, index: int) -> list[bytes]:
        """Return the sibling hashes from leaf `index` to the top, skipping levels where a node moved up alone.

        Raises:
            Misuse: `index` is out of range.
        """
        if not 0 <= index < self.count:
            raise Misuse(f"a tree of {self.count} leaves has no leaf {index}")
        siblings = []
        for level in self._levels:
            beside = index ^ 1  # the top has no sibling
            if beside < len(level):
                siblings.append(level[beside])
            index >>= 1
        return siblings


def verify_path(root: bytes, leaf: bytes, index: int, count: int, path: Sequence[bytes]) -> bool:
    """Whether `path` proves that `leaf` is leaf `index` of `count` under `root`. Never raises, whatever a peer sends."""
    return climb_path(leaf, index, count, path) == root


def climb_path(leaf: bytes, index: int, count: int, path: Sequence[bytes]) -> bytes | None:
    """Return the root to which `path` leads from leaf `index` of `count`; None if the path is of another length. Never raises."""
    if not 0 <= index < count < _COUNT_LIMIT:
        return None
    node, last = leaf_hash(leaf), count - 1
    siblings = iter(path)
    # RFC 9162 §2.1.3.2; `last` is the index of the level's last node
    while last:
        if index % 2 or index < last:
            sibling = next(siblings, None)
            if sibling is None:
                return None
            node = _hash_node(sibling, node) if index % 2 else _hash_node(node, sibling)
        index, last = index >> 1, last >> 1
    return _hash_root(count, node) if next(siblings, None) is None else None


def _hash_node(left: bytes, right: bytes) -> bytes:
    # hash_fields(Tag.MERKLE_NODE, left, right), inlined because a coordinator hashes about n² nodes
    return sha256(_NODE_LEFT + left + _NODE_RIGHT + right).digest()


def _hash_root(count: int, top: bytes) -> bytes:
    return hash_fields(Tag.MERKLE_ROOT, count.to_bytes(8, "little"), top)
