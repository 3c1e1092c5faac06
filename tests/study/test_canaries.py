"""Canary packs, and what is named as the cause when a member's canaries differ."""

import copy
import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image as Pictures
from sklearn.datasets import load_sample_images, load_wine

from tests.study.specs import content_of, whole
from training.models.architectures import build_extractor
from training.models.config import ExtractorConfig
from veilsum.protocol.errors import Misuse
from veilsum.protocol.study import Question
from veilsum.study.canaries import CanaryPack
from veilsum.study.canary_check import CanaryCheck, check_canaries, measure_slips, suggest_tolerance
from veilsum.study.canary_slips import image_slips, resize_image

SIZE, COUNT, CLASSES = (32, 32), 24, ("benign", "malignant", "unclear")
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TOLERANCE = 1e-3
IDS = [f"canary-{place:03}" for place in range(COUNT)]


@cache
def photographs() -> list[np.ndarray]:
    """Parts of two photographs, larger than the extractor takes."""
    rng, whole_ones = np.random.default_rng(0), load_sample_images().images
    corners = [(rng.integers(2), *rng.integers(0, 350, 2)) for _ in range(COUNT)]
    return [whole_ones[which][top : top + 57, left : left + 43] for which, top, left in corners]


@cache
def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return build_extractor(ExtractorConfig("cnn", (3, *SIZE))).eval()


def extract(
    images: Sequence[np.ndarray],
    mean: Sequence[float] = MEAN,
    std: Sequence[float] = STD,
    resize: Pictures.Resampling = Pictures.Resampling.BILINEAR,
) -> np.ndarray:
    """A pipeline as sites have them: Pillow's resize, then normalisation, then the network."""
    pictures = [Pictures.fromarray(each).resize(SIZE[::-1], resize) for each in images]
    pixels = np.stack([np.asarray(each) for each in pictures]).astype(np.float32) / 255
    scaled = (pixels - np.array(mean, np.float32)) / np.array(std, np.float32)
    with torch.no_grad():
        found: np.ndarray = network()(torch.from_numpy(scaled).permute(0, 3, 1, 2)).numpy()
    return found


unnormalised = partial(extract, mean=(0, 0, 0), std=(1, 1, 1))


@cache
def pack() -> CanaryPack:
    variants = {"not-normalised": unnormalised}
    reference, slips = image_slips(extract, photographs(), size=SIZE, variants=variants)
    return CanaryPack(IDS, [CLASSES[place % 3] for place in range(COUNT)], reference, slips=slips)


def question(**changes: Any) -> Question:
    return content_of(whole(**{"dim": 64, "classes": list(CLASSES), **changes})).question


def check(features: np.ndarray, labels: Any = None, ids: Sequence[str] = IDS) -> CanaryCheck:
    given = np.arange(len(ids)) % 3 if labels is None else labels
    return check_canaries(pack(), question(), TOLERANCE, ids, features, given)


def found(outcome: CanaryCheck) -> list[str]:
    return [each.slip for each in outcome.findings]


def changed(
    change: Callable[[np.ndarray], np.ndarray], pipeline: Callable[..., np.ndarray] = extract, **choices: Any
) -> np.ndarray:
    return pipeline([np.ascontiguousarray(change(each)) for each in photographs()], **choices)


def test_a_pipeline_of_the_same_kind_agrees() -> None:
    outcome = check(2 * extract(photographs()).astype(np.float64))
    assert (found(outcome), outcome.canaries) == ([], COUNT)
    assert outcome.largest is not None
    assert outcome.largest < 1e-6


def test_the_extractor_s_own_resize_is_no_slip() -> None:
    assert {"nearest", "bicubic", "bilinear-aliased"} < set(pack().slips)
    assert "bilinear" not in pack().slips
    assert 0 < suggest_tolerance(pack()) <= min(0.01, min(measure_slips(pack()).values()) / 2)


@pytest.mark.parametrize(
    ("slip", "features"),
    [
        ("bgr", lambda: changed(lambda image: image[:, :, ::-1])),
        ("transposed", lambda: changed(lambda image: image.swapaxes(0, 1))),
        ("rotated", lambda: changed(np.rot90)),
        ("flipped", lambda: changed(lambda image: image[:, ::-1])),
        ("bicubic", lambda: extract(photographs(), resize=Pictures.Resampling.BICUBIC)),
        ("nearest", lambda: extract(photographs(), resize=Pictures.Resampling.NEAREST)),
        ("not-normalised", lambda: unnormalised(photographs())),
        ("columns", lambda: extract(photographs())[:, ::-1]),
        ("columns", lambda: extract(photographs())[:, [1, 0, *range(2, 64)]]),
        ("rows", lambda: np.roll(extract(photographs()), 1, axis=0)),
        ("own-moments", lambda: own_moments(extract(photographs()))),
        ("other", lambda: extract([np.random.default_rng(1).permutation(each) for each in photographs()])),
    ],
)
def test_the_likely_cause_is_named(slip: str, features: Callable[[], np.ndarray]) -> None:
    outcome = check(features())
    assert found(outcome) == [slip]
    assert outcome.canary in outcome.describe()
    assert outcome.largest is not None
    assert outcome.largest > TOLERANCE


def bgr(image: np.ndarray) -> np.ndarray:
    return image[:, :, ::-1]


def transposed(image: np.ndarray) -> np.ndarray:
    return image.swapaxes(0, 1)


@pytest.mark.parametrize(
    ("slips", "features"),
    [
        (["bgr", "bicubic"], lambda: changed(bgr, resize=Pictures.Resampling.BICUBIC)),
        (["transposed", "bgr"], lambda: changed(lambda image: bgr(transposed(image)))),
        (["not-normalised", "bgr"], lambda: changed(bgr, unnormalised)),
        (["bgr", "columns"], lambda: changed(bgr)[:, ::-1]),
        (["columns", "rows"], lambda: np.roll(extract(photographs())[:, ::-1], 1, axis=0)),
        (["bgr", "own-moments"], lambda: own_moments(changed(bgr))),
        (["other"], lambda: own_moments(np.roll(changed(bgr)[:, ::-1], 1, axis=0))),
    ],
)
def test_two_causes_at_once_are_both_named(slips: list[str], features: Callable[[], np.ndarray]) -> None:
    """Three at once have an unknown cause."""
    outcome = check(features())
    assert found(outcome) == slips
    assert outcome.canary in outcome.findings[-1].detail


def test_features_and_labels_are_compared_each_by_themselves() -> None:
    assert found(check(extract(photographs())[:, ::-1], (np.arange(COUNT) + 1) % 3)) == ["columns", "labels"]


def test_pairs_are_as_many_as_a_pack_holds() -> None:
    variants = {f"variant-{place}": unnormalised for place in range(20)}
    _, slips = image_slips(extract, photographs()[:2], size=SIZE, variants=variants)
    assert len(slips) == 64
    assert {"bgr--bicubic", "transposed--bgr"} < {*slips}
    CanaryPack(IDS[:2], CLASSES[:2], np.ones((2, 64)), slips=slips)


def own_moments(features: np.ndarray) -> np.ndarray:
    rng = np.random.default_rng(2)
    return (features - rng.normal(0, 0.1, 64)) / rng.uniform(0.5, 2, 64)


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ((np.arange(COUNT) + 1) % 3, "shifted by 1"),
        (np.array([1, 0, 2])[np.arange(COUNT) % 3], "another order (benign became malignant"),
        (np.where(np.arange(COUNT) < 2, -1, np.arange(COUNT) % 3), "missing"),
        (np.where(np.arange(COUNT) < 1, 2, np.arange(COUNT) % 3), "differ"),
    ],
)
def test_labels_are_compared(labels: np.ndarray, said: str) -> None:
    outcome = check(extract(photographs()), labels)
    assert found(outcome) == ["labels"]
    assert said in outcome.describe()


def test_missing_strange_and_unusable_canaries_are_named() -> None:
    features = extract(photographs())
    features[2] = np.nan
    outcome = check(features, ids=[*IDS[:-1], "canary-of-another-pack"])
    assert found(outcome) == ["unknown-id", "missing", "unusable"]
    assert IDS[-1] in outcome.findings[1].detail
    assert found(check(extract(photographs()), ids=[*IDS[:-1], IDS[0]]))[:2] == ["repeated", "missing"]
    empty = check(np.zeros((0, 64)), ids=[])
    assert (found(empty), empty.largest) == (["missing"], None)


def test_columns_are_matched_by_name_and_moments_of_a_table_are_named_by_column() -> None:
    data = load_wine()
    rows, names = data.data[::8], [each.replace("/", " ") for each in data.feature_names]
    reference = (rows - data.data.mean(axis=0)) / data.data.std(axis=0)
    own = (rows - data.data[:60].mean(axis=0)) / data.data[:60].std(axis=0)
    ids = IDS[: len(rows)]
    made = CanaryPack(ids, [CLASSES[each] for each in data.target[::8]], reference, names)
    asked = question(dim=13, columns=names[::-1])
    same = check_canaries(made, asked, TOLERANCE, ids, reference[:, ::-1], data.target[::8])
    assert found(same) == []
    outcome = check_canaries(made, asked, TOLERANCE, ids, own[:, ::-1], data.target[::8])
    assert found(outcome) == ["own-moments"]
    assert names[-1] in outcome.describe()


@pytest.mark.parametrize(
    ("how", "filter_"),
    [
        ("nearest", Pictures.Resampling.NEAREST),
        ("bilinear", Pictures.Resampling.BILINEAR),
        ("bicubic", Pictures.Resampling.BICUBIC),
    ],
)
@pytest.mark.parametrize("size", [(32, 32), (80, 20)])
def test_images_are_resized_as_pillow_does(
    how: str, filter_: Pictures.Resampling, size: tuple[int, int]
) -> None:
    image = photographs()[0]
    expected = np.asarray(Pictures.fromarray(image).resize(size[::-1], filter_)).astype(int)
    assert np.abs(resize_image(image, size, how) - expected).max() <= 1
    assert resize_image(image[..., 0], size, how).shape == size


def test_a_pack_is_read_as_it_was_written() -> None:
    inputs = {"0001.png": b"\x89PNG", "notes.txt": b"text"}
    made = CanaryPack(IDS, pack().labels, pack().features, slips=pack().slips, inputs=inputs)
    content = made.to_bytes()
    again = CanaryPack.from_bytes(content)
    assert again.to_bytes() == content
    assert (again.ids, again.inputs) == (tuple(IDS), inputs)
    assert np.array_equal(again.slips["bgr"], made.slips["bgr"])
    shuffled = CanaryPack(
        IDS,
        made.labels,
        made.features,
        (),
        dict(sorted(made.slips.items(), reverse=True)),
        dict(reversed(inputs.items())),
    )
    assert shuffled.to_bytes() == content


def overlapping() -> bytes:
    """Return an archive whose entries all stand for the bytes of one."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("features", bytes(1 << 16))
        [entry] = archive.infolist()
        for place in range(8):
            more = copy.copy(entry)
            more.filename = f"slips/{place}"
            archive.filelist.append(more)
    return file.getvalue()


def doctored(more: Mapping[str, bytes]) -> bytes:
    with zipfile.ZipFile(io.BytesIO(pack().to_bytes())) as archive:
        entries = {**{name: archive.read(name) for name in archive.namelist()}, **more}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return file.getvalue()


def test_anything_else_is_no_pack() -> None:
    """Others are in `assurance/vectors/canaries.json`."""
    more = ({"inputs/../x": b""}, {"slips/unlisted": b""}, {"canaries.json": b"[" * 10_000})
    for content in (overlapping(), *map(doctored, more)):
        with pytest.raises(Misuse, match="canary pack"):
            CanaryPack.from_bytes(content)


@pytest.mark.parametrize(
    "change",
    [
        {"features": np.ones(COUNT)},
        {"columns": ["age"]},
        {"slips": {"bgr": np.ones((COUNT, 63))}},
        {"slips": {"B G R": np.ones((COUNT, 64))}},
    ],
)
def test_a_pack_of_parts_that_do_not_fit_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        CanaryPack(**{"ids": IDS, "labels": pack().labels, "features": pack().features, **change})
