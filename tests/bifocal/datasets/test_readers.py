"""Every reader of a published format against small files in that format."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from bifocal import registry
from bifocal.datasets import Coco, CocoInstances, Flickr8k, Flickr30k, Precomputed, Scenes
from bifocal.datasets.base import Corpus

PACKAGE = "bifocal.datasets"
NOWHERE = Path("unused")


def splits(corpus: Corpus) -> dict[str, str]:
    return {image.image_id: image.split for image in corpus.images}


def texts(corpus: Corpus) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for caption in corpus.captions:
        found.setdefault(caption.image_id, []).append(caption.text)
    return found


@pytest.mark.parametrize("name", registry.parts(PACKAGE))
def test_every_source_builds_without_arguments(name):
    source = registry.build(PACKAGE, name)
    if not isinstance(source, Scenes):
        with pytest.raises(ValueError, match=f"{name} needs root: the folder that holds"):
            source.read(NOWHERE)
        with pytest.raises(ValueError, match="is no folder"):
            registry.build(PACKAGE, name, root=Path("/no/such/folder")).read(NOWHERE)


# --- Flickr8k


@pytest.fixture
def flickr8k(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    for name in ("1.jpg", "2.jpg", "3.jpg"):
        (tmp_path / "images" / name).touch()
    lines = [f"{name}#{n}\tA dog {n} of {name} ." for name in ("1.jpg", "2.jpg", "3.jpg", "9.jpg.1") for n in range(5)]
    (tmp_path / "Flickr8k.token.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "Flickr_8k.trainImages.txt").write_text("2.jpg\n")
    (tmp_path / "Flickr_8k.devImages.txt").write_text("1.jpg\n")
    return tmp_path


def test_flickr8k_reads_tokens_and_lists(flickr8k):
    corpus = Flickr8k(flickr8k).read(NOWHERE)
    assert splits(corpus) == {"2.jpg": "train", "1.jpg": "val"}
    assert texts(corpus)["2.jpg"] == [f"A dog {n} of 2.jpg ." for n in range(5)]
    assert all((corpus.image_root / str(image.path)).is_file() for image in corpus.images)
    assert len({caption.caption_id for caption in corpus.captions}) == len(corpus.captions)


def test_flickr8k_lists_what_is_in_no_list(flickr8k):
    left_out = Flickr8k(flickr8k).read(NOWHERE).left_out
    assert Counter(refusal.kind for refusal in left_out) == {"image": 1, "caption": 10}
    assert all(refusal.by_design for refusal in left_out)
    reason = "in none of the lists Flickr_8k.trainImages.txt, Flickr_8k.devImages.txt"
    assert [(refusal.what, refusal.reason) for refusal in left_out if refusal.kind == "image"] == [("3.jpg", reason)]


def test_flickr8k_says_what_is_wrong(flickr8k):
    with pytest.raises(ValueError, match="option images"):
        Flickr8k(flickr8k, images="Flicker8k_Dataset").read(NOWHERE)
    tokens = flickr8k / "Flickr8k.token.txt"
    tokens.write_text("1.jpg#0\tA dog .\n1.jpg A cat .\n")
    with pytest.raises(ValueError, match=r"line 2: '1\.jpg A cat \.', expected name\.jpg#number<tab>caption"):
        Flickr8k(flickr8k).read(NOWHERE)
    tokens.write_bytes(b"1.jpg#0\t\xff\xfe\n")
    with pytest.raises(ValueError, match="not UTF-8"):
        Flickr8k(flickr8k).read(NOWHERE)
    tokens.unlink()
    with pytest.raises(ValueError, match=r"needs .*token\.txt: no such file"):
        Flickr8k(flickr8k).read(NOWHERE)


def test_flickr8k_needs_a_list(flickr8k):
    for path in flickr8k.glob("Flickr_8k.*Images.txt"):
        path.unlink()
    with pytest.raises(ValueError, match="none of the lists"):
        Flickr8k(flickr8k).read(NOWHERE)


# --- Karpathy's files


def karpathy(split: str, number: int, **more: object) -> dict[str, object]:
    sentences = [
        {"tokens": ["a", "dog"], "raw": f"A dog {n}.", "imgid": number, "sentid": 5 * number + n} for n in range(5)
    ]
    name = f"{number}.jpg"
    return {"sentids": [], "imgid": number, "sentences": sentences, "split": split, "filename": name} | more


def write_karpathy(path: Path, images: list[dict[str, object]]) -> None:
    path.write_text(json.dumps({"images": images, "dataset": path.stem}))


def test_flickr30k_reads_karpathys_file(tmp_path):
    write_karpathy(
        tmp_path / "dataset_flickr30k.json",
        [karpathy(split, number) for number, split in enumerate(("train", "test", "val", "train"))],
    )
    corpus = Flickr30k(tmp_path, images="flickr30k-images").read(NOWHERE)
    assert splits(corpus) == {"0.jpg": "train", "1.jpg": "test", "2.jpg": "val", "3.jpg": "train"}
    assert corpus.image_root == tmp_path / "flickr30k-images"
    assert [image.path for image in corpus.images] == ["0.jpg", "1.jpg", "2.jpg", "3.jpg"]
    assert texts(corpus)["3.jpg"] == [f"A dog {n}." for n in range(5)]
    assert [caption.caption_id for caption in corpus.captions] == list(range(20))


@pytest.fixture
def coco(tmp_path: Path) -> Path:
    images = [
        karpathy(split, number, filepath=folder, cocoid=1000 + number)
        for number, (split, folder) in enumerate(
            [("train", "train2014"), ("restval", "val2014"), ("val", "val2014"), ("test", "val2014")]
        )
    ]
    write_karpathy(tmp_path / "dataset_coco.json", images)
    return tmp_path


def test_coco_lets_restval_join_train(coco):
    corpus = Coco(coco).read(NOWHERE)
    assert splits(corpus) == {"1000": "train", "1001": "train", "1002": "val", "1003": "test"}
    assert [image.path for image in corpus.images] == ["train2014/0.jpg", *(f"val2014/{n}.jpg" for n in (1, 2, 3))]
    assert not corpus.left_out


def test_coco_can_leave_restval_out(coco):
    corpus = Coco(coco, restval=False).read(NOWHERE)
    assert set(splits(corpus)) == set(texts(corpus)) == {"1000", "1002", "1003"}
    assert Counter(refusal.kind for refusal in corpus.left_out) == {"image": 1, "caption": 5}
    assert all(refusal.by_design for refusal in corpus.left_out)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "expected an object with a list 'images'"),
        (json.dumps({"images": [{"split": "train"}]}), "image 0 has no sound filename"),
        (json.dumps({"images": [karpathy("train", 0) | {"sentences": [{"raw": "x"}]}]}), "KeyError 'sentid'"),
        (json.dumps({"images": [karpathy("dev", 0)]}), "has split 'dev', expected"),
    ],
)
def test_karpathys_format_is_checked(tmp_path, content, message):
    (tmp_path / "dataset_coco.json").write_text(content)
    with pytest.raises(ValueError, match=rf"dataset_coco\.json.*{message}"):
        Coco(tmp_path).read(NOWHERE)


# --- COCO's own files


def write_coco(root: Path, part: str, ids: range, crowd: bool = False) -> None:
    folder = root / "annotations"
    folder.mkdir(exist_ok=True)
    images = [{"id": n, "file_name": f"{n:012d}.jpg", "width": 640, "height": 480} for n in ids]
    captions = [{"image_id": n, "id": 10 * n + k, "caption": f"A dog {k}.\n"} for n in ids for k in range(5)]
    boxes = [
        {"image_id": n, "category_id": category, "bbox": [10.5, 20, 30, 40 + k], "iscrowd": 0, "id": 0}
        for n in ids
        for k, category in enumerate((1, 18, 1))
    ]
    if crowd:
        boxes.append({"image_id": ids[0], "category_id": 1, "bbox": [0, 0, 600, 400], "iscrowd": 1, "id": 0})
    categories = [{"id": 1, "name": "person"}, {"id": 18, "name": "dog"}]
    (folder / f"captions_{part}.json").write_text(json.dumps({"images": images, "annotations": captions}))
    (folder / f"instances_{part}.json").write_text(
        json.dumps({"images": images, "annotations": boxes, "categories": categories})
    )


def test_coco_instances_makes_one_phrase_of_a_category(tmp_path):
    write_coco(tmp_path, "train2017", range(1, 2), crowd=True)
    corpus = CocoInstances(tmp_path, val=0.0).read(NOWHERE)
    phrases = {phrase.phrase: phrase for phrase in corpus.phrases}
    assert phrases["person"].boxes == ((10.5, 20, 40.5, 60), (10.5, 20, 40.5, 62))
    assert phrases["dog"].boxes == ((10.5, 20, 40.5, 61),)
    assert {phrase.caption_id for phrase in corpus.phrases} == {None}
    assert {phrase.category for phrase in corpus.phrases} == {"person", "dog"}
    assert [(refusal.what, refusal.by_design) for refusal in corpus.left_out] == [("'person' of 1", True)]
    assert corpus.images[0].size == (640, 480)


def test_coco_instances_reads_a_part_for_a_split(tmp_path):
    write_coco(tmp_path, "train2017", range(1, 4))
    write_coco(tmp_path, "val2017", range(4, 6))
    corpus = CocoInstances(tmp_path).read(NOWHERE)
    assert splits(corpus) == {"1": "train", "2": "train", "3": "train", "4": "val", "5": "val"}
    assert corpus.images[3].path == "val2017/000000000004.jpg"
    assert len(texts(corpus)["5"]) == 5


def test_coco_instances_draws_fractions_with_the_seed(tmp_path):
    write_coco(tmp_path, "train2017", range(40))

    def drawn(seed: int) -> dict[str, str]:
        return splits(CocoInstances(tmp_path, val=0.25, test=0.1, seed=seed).read(NOWHERE))

    first = drawn(1)
    assert Counter(first.values()) == {"train": 26, "val": 10, "test": 4}
    assert drawn(1) == first
    assert drawn(2) != first
    write_coco(tmp_path, "train2017", range(39, -1, -1))
    assert drawn(1) == first  # whatever the order in the file


@pytest.mark.parametrize("fractions", [{"val": -0.1}, {"val": 0.5, "test": 0.5}])
def test_coco_instances_refuses_impossible_fractions(fractions):
    with pytest.raises(ValueError, match="together less than 1"):
        CocoInstances(**fractions)


def test_coco_instances_says_what_is_wrong(tmp_path):
    write_coco(tmp_path, "train2017", range(2))
    with pytest.raises(ValueError, match=r"captions_val2017\.json: no such file"):
        CocoInstances(tmp_path).read(NOWHERE)
    path = tmp_path / "annotations" / "instances_train2017.json"
    path.write_text(json.dumps({"annotations": [{"image_id": 1, "category_id": 7}], "categories": []}))
    with pytest.raises(ValueError, match=r"instances_train2017\.json is not in COCO's format: KeyError 7"):
        CocoInstances(tmp_path, val=0.0).read(NOWHERE)


# --- SCAN's and VSE++'s files


def write_precomputed(root: Path, name: str, images: int, rows: int, ids: list[str], captions: int = 5) -> None:
    np.save(root / f"{name}_ims.npy", np.zeros((rows, 36, 4), np.float32))
    (root / f"{name}_caps.txt").write_text("".join(f"{name} {line}\n" for line in range(captions * images)))
    (root / f"{name}_ids.txt").write_text("".join(f"{line}\n" for line in ids))


@pytest.mark.parametrize("rows_each", [1, 5])
@pytest.mark.parametrize("ids_each", [1, 5])
def test_precomputed_tells_rows_of_images_from_rows_of_captions(tmp_path, rows_each, ids_each):
    published = {"train": ["70", "71", "72"], "dev": ["80"], "test": ["90", "91"]}
    for name, ids in published.items():
        lines = [line for line in ids for _ in range(ids_each)]
        write_precomputed(tmp_path, name, len(ids), rows_each * len(ids), lines)
    corpus = Precomputed(tmp_path).read(NOWHERE)
    rows = [f"train-{n * rows_each:06d}-{70 + n}" for n in range(3)]
    assert [image.image_id for image in corpus.images[:3]] == rows
    assert Counter(splits(corpus).values()) == {"train": 3, "val": 1, "test": 2}
    assert texts(corpus)[rows[1]] == [f"train {line}" for line in range(5, 10)]
    assert {image.path for image in corpus.images} == {None}
    assert len({caption.caption_id for caption in corpus.captions}) == 30


def test_precomputed_says_which_count_is_wrong(tmp_path):
    for name in ("train", "dev", "testall"):
        write_precomputed(tmp_path, name, 2, 2, ["1", "2"])
    source = Precomputed(tmp_path, test="testall")
    assert len(source.read(NOWHERE).images) == 6
    with pytest.raises(ValueError, match=r"test_caps\.txt: no such file"):
        Precomputed(tmp_path).read(NOWHERE)
    np.save(tmp_path / "dev_ims.npy", np.zeros((3, 4), np.float32))
    with pytest.raises(ValueError, match=r"dev_ims\.npy has 3 rows, but the captions are 10: expected 2 rows"):
        source.read(NOWHERE)
    write_precomputed(tmp_path, "dev", 2, 2, ["1"])
    with pytest.raises(ValueError, match=r"dev_ids\.txt has 1 lines, but the captions are 10: expected 2 lines"):
        source.read(NOWHERE)
    write_precomputed(tmp_path, "dev", 2, 2, ["1", "2"], captions=4)
    with pytest.raises(ValueError, match=r"dev_caps\.txt has 8 lines, expected 5 for every image"):
        source.read(NOWHERE)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"PK not numpy"),
        lambda path: path.write_bytes(path.read_bytes()[:-8]),
        lambda path: np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True),
    ],
    ids=["empty", "other", "cut", "pickle"],
)
def test_precomputed_refuses_what_is_no_array_of_numbers(tmp_path, spoil):
    for name in ("train", "dev", "test"):
        write_precomputed(tmp_path, name, 2, 2, ["1", "2"])
    spoil(tmp_path / "train_ims.npy")
    with pytest.raises(ValueError, match=r"train_ims\.npy is no whole array of numbers"):
        Precomputed(tmp_path).read(NOWHERE)
