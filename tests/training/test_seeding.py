import torch

from training.seeding import Stream, make_generator, torch_seeded

KEYS: list[tuple[int, Stream, *tuple[int, ...]]] = [
    (0, Stream.PARTICIPATION),
    (0, Stream.LOCAL_TRAINING),
    (1, Stream.PARTICIPATION),
    (0, Stream.LOCAL_TRAINING, 0, 1),
    (0, Stream.LOCAL_TRAINING, 1, 0),
    (0, Stream.LOCAL_TRAINING, 0, 0),
]


def test_each_seed_purpose_round_and_member_has_its_own_stream() -> None:
    assert len({int(make_generator(*key).integers(2**63)) for key in KEYS}) == len(KEYS)
    assert make_generator(3, Stream.PARTITION).integers(2**63) == make_generator(
        3, Stream.PARTITION
    ).integers(2**63)


def test_a_seeded_block_leaves_the_callers_generator_as_it_was() -> None:
    before = torch.random.get_rng_state()
    with torch_seeded(0, Stream.LOCAL_TRAINING, 4, 2):
        one = torch.rand(3)
    with torch_seeded(0, Stream.LOCAL_TRAINING, 4, 2):
        assert torch.equal(torch.rand(3), one)
    assert torch.equal(torch.random.get_rng_state(), before)
