import zipfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.calls import record_calls
from training.data.catalogue import load_dataset
from training.data.folder import DataError
from training.data.pictures import hold_out

from .published import picture, tree

RED, GREEN = (200, 0, 0), (0, 200, 0)
TINY = {
    "tiny-imagenet-200/wnids.txt": b"n02\nn01\n",
    "tiny-imagenet-200/train/n02/images/n02_1.JPEG": picture(RED, 64, "JPEG"),
    "tiny-imagenet-200/train/n02/images/n02_0.JPEG": picture(90, 64, "JPEG"),
    "tiny-imagenet-200/train/n02/n02_boxes.txt": b"n02_0.JPEG\t0\t0\t63\t63\n",
    "tiny-imagenet-200/train/n01/images/n01_0.JPEG": picture(GREEN, 64, "JPEG"),
    "tiny-imagenet-200/val/val_annotations.txt": b"val_0.JPEG\tn01\t0\t0\t9\t9\nval_1.JPEG\tn02\t0\t0\t9\t9\n",
    "tiny-imagenet-200/val/images/val_0.JPEG": picture(GREEN, 64, "JPEG"),
    "tiny-imagenet-200/val/images/val_1.JPEG": picture(RED, 64, "JPEG"),
}


def pack(folder: Path) -> None:
    (folder / "tinyimagenet").mkdir()
    with zipfile.ZipFile(folder / "tinyimagenet" / "tiny-imagenet-200.zip", "w") as archive:
        for name, content in TINY.items():
            archive.writestr(name, content)


@pytest.mark.parametrize("zipped", [False, True], ids=["folder", "zip"])
def test_tinyimagenet_numbers_classes_as_its_list_does(tmp_path: Path, *, zipped: bool) -> None:
    if zipped:
        pack(tmp_path)
    else:
        tree(tmp_path / "tinyimagenet", TINY)
    train, test = load_dataset("tinyimagenet", tmp_path, checksums={})
    assert train.x.shape == (3, 3, 64, 64)
    assert train.y.tolist() == [0, 0, 1]
    assert test.y.tolist() == [1, 0]
    assert train.class_names == ("n02", "n01")
    assert train.x[0].float().std() < 1  # the grey one, as three channels
    assert np.allclose(train.x[1, :, 0, 0], RED, atol=8)
    assert load_dataset("tinyimagenet", tmp_path, side=32, checksums={}).train.x.shape == (3, 3, 32, 32)


def test_the_names_of_an_archive_are_gone_through_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack(tmp_path)
    asked = record_calls(monkeypatch, zipfile.ZipFile, "namelist", id)
    load_dataset("tinyimagenet", tmp_path, checksums={})
    assert len(asked) == 1


def test_tinyimagenet_without_a_file_or_as_no_archive_is_named(tmp_path: Path) -> None:
    tree(tmp_path / "tinyimagenet", {k: v for k, v in TINY.items() if "wnids" not in k})
    with pytest.raises(DataError, match=r"FileNotFoundError.*wnids"):
        load_dataset("tinyimagenet", tmp_path)
    tree(tmp_path / "other" / "tinyimagenet", {"tiny-imagenet-200.zip": b"no archive"})
    with pytest.raises(DataError, match=r"tiny-imagenet-200\.zip"):
        load_dataset("tinyimagenet", tmp_path / "other", checksums={})


CINIC10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def test_cinic_10_leaves_its_validation_images_alone(tmp_path: Path) -> None:
    parts = {"train": RED, "valid": GREEN, "test": RED}
    for part, colour in parts.items():
        for name in CINIC10:
            tree(tmp_path / "cinic-10", {f"{part}/{name}/cifar10-{part}-1.png": picture(colour, 32)})
    train, test = load_dataset("cinic-10", tmp_path)
    assert train.class_names == test.class_names == CINIC10
    assert train.x.shape == test.x.shape == (10, 3, 32, 32)
    assert (train.x[:, 0] == 200).all()


def test_cinic_10_with_a_class_missing_or_a_stray_folder_is_refused(tmp_path: Path) -> None:
    for part in ("train", "test"):
        for name in CINIC10:
            tree(tmp_path / "cinic-10", {f"{part}/{name}/a.png": picture(RED, 32)})
    (tmp_path / "cinic-10" / "test" / "bird").rename(tmp_path / "cinic-10" / "test" / "a-stray")
    with pytest.raises(DataError, match=r"test .*a-stray, bird"):
        load_dataset("cinic-10", tmp_path)


def domains(names: tuple[str, ...], classes: tuple[str, ...], each: int) -> dict[str, bytes]:
    return {
        f"{domain}/{label}/pic_{i:03}.jpg": picture((40 * d, 30 * c, i), 8, "JPEG")
        for d, domain in enumerate(names)
        for c, label in enumerate(classes)
        for i in range(each)
    }


PACS = ("art_painting", "cartoon", "photo", "sketch")


def test_pacs_holds_out_as_many_of_each_class_and_domain(tmp_path: Path) -> None:
    tree(tmp_path / "pacs", domains(PACS, ("dog", "elephant"), 81))
    train, test = load_dataset("pacs", tmp_path, side=32)
    assert test.groups is not None
    assert train.groups is not None
    cells = np.bincount(test.groups.numpy() * 2 + test.y.numpy())
    assert cells.tolist() == [40] * 8
    assert len(train) == 8 * 41
    assert train.group_names == PACS
    assert train.x.shape[1:] == (3, 32, 32)
    # The colour says where a picture came from.
    assert np.allclose(train.x[:, 0].float().mean((1, 2)), 40 * train.groups, atol=5)


def test_office_home_holds_out_seven_and_half_of_a_small_cell(tmp_path: Path) -> None:
    tree(tmp_path / "office-home", domains(("Art", "Clipart", "Product", "Real World"), ("Bed", "Mug"), 10))
    train, test = load_dataset("office-home", tmp_path, side=16)
    assert (len(train), len(test)) == (40, 40)
    held = hold_out(np.zeros(40, dtype=np.int64), np.repeat([0, 1], [30, 10]), 7)
    assert (held[:30].sum(), held[30:].sum()) == (7, 5)


def test_domains_that_disagree_on_classes_or_lack_pictures_are_named(tmp_path: Path) -> None:
    tree(tmp_path / "pacs", domains(PACS[:3], ("dog",), 2) | domains(PACS[3:], ("cat",), 2))
    with pytest.raises(DataError, match=r"sketch .*'cat'.*art_painting .*'dog'"):
        load_dataset("pacs", tmp_path)
    (tmp_path / "pacs" / "sketch" / "cat" / "pic_000.jpg").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"pic_000\.jpg"):
        load_dataset("pacs", tmp_path)
    (tmp_path / "empty" / "pacs" / "art_painting" / "dog").mkdir(parents=True)
    with pytest.raises(DataError, match=r"art_painting/CLASS/\*\.jpg"):
        load_dataset("pacs", tmp_path / "empty")


def ham(lesions: int, *, separator: str = ",") -> dict[str, bytes]:
    head = ["lesion_id", "image_id", "dx", "dx_type", "age", "sex", "localization", "dataset"]
    rows = [
        [
            f"HAM_{lesion // 2}",
            f"ISIC_{lesion}",
            ("nv", "mel")[lesion % 2],
            "histo",
            "50",
            "male",
            "back",
            source,
        ]
        for lesion, source in ((i, ("rosendahl", "vidir_modern")[i >= lesions // 2]) for i in range(lesions))
    ]
    table = "\n".join(separator.join(row) for row in [head, *rows]).encode()
    pictures = {
        f"HAM10000_images_part_{1 + i % 2}/ISIC_{i}.jpg": picture((i, i, i), 12, "JPEG")
        for i in range(lesions)
    }
    return {"HAM10000_metadata" + (".tab" if separator == "\t" else ""): table} | pictures


@pytest.mark.parametrize("separator", [",", "\t"])
def test_ham10000_holds_out_a_fifth_of_each_source_and_whole_lesions(tmp_path: Path, separator: str) -> None:
    tree(tmp_path / "ham10000", ham(40, separator=separator))
    train, test = load_dataset("ham10000", tmp_path, side=12)
    assert test.groups is not None
    assert test.groups.bincount().tolist() == [4, 4]
    assert train.class_names == ("mel", "nv")
    assert train.group_names == ("rosendahl", "vidir_modern")

    def lesions(x: npt.NDArray[np.uint8]) -> set[int]:
        # The grey says which image it is.
        return {round(float(image.mean())) // 2 for image in x}

    assert not lesions(train.x.numpy()) & lesions(test.x.numpy())


def test_ham10000_without_a_column_or_a_picture_is_named(tmp_path: Path) -> None:
    files = ham(4)
    tree(tmp_path / "ham10000", files)
    first = tmp_path / "ham10000" / "HAM10000_images_part_1" / "ISIC_0.jpg"
    first.write_bytes(first.read_bytes()[:-40])
    with pytest.raises(DataError, match=r"ValueError: ISIC_0\.jpg: "):
        load_dataset("ham10000", tmp_path)
    first.unlink()
    with pytest.raises(DataError, match=r"ISIC_0\.jpg"):
        load_dataset("ham10000", tmp_path)
    (tmp_path / "ham10000" / "HAM10000_metadata").write_text("lesion_id,image_id,dx\na,b,c\n")
    with pytest.raises(DataError, match="columns"):
        load_dataset("ham10000", tmp_path)


@pytest.mark.parametrize("broken", [b"HAM_9,ISIC_9,nv", b"HAM_9,ISIC_9,n\xff,histo,50,male,back,rosendahl"])
def test_ham10000_with_a_broken_line_is_named(tmp_path: Path, broken: bytes) -> None:
    files = ham(4)
    files["HAM10000_metadata"] += b"\n" + broken
    tree(tmp_path / "ham10000", files)
    with pytest.raises(DataError, match="HAM10000_metadata can't be read"):
        load_dataset("ham10000", tmp_path)
