"""What a path in a Merkle tree proves, and what must be refused as a path."""

import pytest

from veilsum.protocol.errors import Misuse
from veilsum.protocol.merkle import Tree, leaf_hash, verify_path

SIZES = range(1, 34)


def leaves_of(count: int) -> list[bytes]:
    return [f"leaf {i}".encode() for i in range(count)]


def test_a_path_shows_its_leaf_at_its_index_and_nothing_else() -> None:
    for count in SIZES:
        leaves = leaves_of(count)
        tree = Tree(iter(leaves))
        for index, leaf in enumerate(leaves):
            path = tree.path_to(index)
            accepted = [i for i in range(-1, count + 2) if verify_path(tree.root, leaf, i, count, path)]
            assert accepted == [index], count
            accepted = [n for n in range(40) if verify_path(tree.root, leaf, index, n, path)]
            assert accepted == [count]
            assert not verify_path(tree.root, leaf + b"!", index, count, path)
            assert not verify_path(bytes(32), leaf, index, count, path)


def test_a_changed_path_is_refused() -> None:
    for count in SIZES:
        leaves = leaves_of(count)
        tree = Tree(leaves)
        for index, leaf in enumerate(leaves):
            path = tree.path_to(index)
            changed = [[*path, bytes(32)], [bytes(32), *path], [*path, tree.root]]
            for i in range(len(path)):
                changed += [[*path[:i], *other, *path[i + 1 :]] for other in ([], [bytes(32)], [b""])]
            changed += [path[::-1]] if len(path) > 1 else []
            accepted = [other for other in changed if verify_path(tree.root, leaf, index, count, other)]
            assert accepted == [], (count, index)


def test_a_node_never_passes_for_a_leaf() -> None:
    # the second preimage of naive trees: a smaller tree over what were inner nodes
    for count in range(2, 34):
        tree = Tree(leaves_of(count))
        level = [leaf_hash(leaf) for leaf in leaves_of(count)]
        pairs = [level[i] + level[i + 1] for i in range(0, count - 1, 2)] + level[count - count % 2 :]
        assert Tree(pairs).root != tree.root
        for index, pair in enumerate(pairs):
            path = tree.path_to(2 * index)[1:]
            assert not any(verify_path(tree.root, pair, index, n, path) for n in range(1, count + 1)), count


@pytest.mark.parametrize("count", [2**64, 2**64 + 1, 2**200])
def test_a_count_beyond_its_field_is_refused_and_raises_nothing(count: int) -> None:
    assert not verify_path(bytes(32), b"", 0, count, [bytes(32)] * 300)
    assert not verify_path(bytes(32), b"", count - 1, count, [bytes(32)] * 300)


def test_the_tree_of_no_leaves_is_that_of_one_leaf_of_no_bytes() -> None:
    assert Tree([]).root == Tree([b""]).root != Tree([b"\0"]).root


@pytest.mark.parametrize("index", [-1, 3, 4])
def test_refuses_the_path_of_no_leaf(index: int) -> None:
    with pytest.raises(Misuse, match=f"no leaf {index}"):
        Tree(leaves_of(3)).path_to(index)
