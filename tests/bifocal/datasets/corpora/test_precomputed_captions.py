"""PrecomputedCaptions on small files in the format of VSE++ and SCAN."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from bifocal.datasets.corpora import PrecomputedCaptions
from tests.bifocal.datasets.corpora.entries import UNUSED, splits, texts


def write_precomputed(
    root: Path, name: str, images: int, rows: int, ids: list[str], captions: int = 5
) -> None:
    np.save(root / f"{name}_ims.npy", np.zeros((rows, 36, 4), np.float32))
    (root / f"{name}_caps.txt").write_text(
        "".join(f"{name} {line}\n" for line in range(captions * images))
    )
    (root / f"{name}_ids.txt").write_text("".join(f"{line}\n" for line in ids))


@pytest.mark.parametrize("rows_each", [1, 5])
@pytest.mark.parametrize("ids_each", [1, 5])
def test_precomputed_captions_distinguishes_rows_per_image_and_per_caption(
    tmp_path, rows_each, ids_each
):
    published = {"train": ["70", "71", "72"], "dev": ["80"], "test": ["90", "91"]}
    for name, ids in published.items():
        lines = [line for line in ids for _ in range(ids_each)]
        write_precomputed(tmp_path, name, len(ids), rows_each * len(ids), lines)
    corpus = PrecomputedCaptions(tmp_path).read(UNUSED)
    rows = [f"train-{n * rows_each:06d}-{70 + n}" for n in range(3)]
    assert [image.image_id for image in corpus.images[:3]] == rows
    assert Counter(splits(corpus).values()) == {"train": 3, "val": 1, "test": 2}
    assert texts(corpus)[rows[1]] == [f"train {line}" for line in range(5, 10)]
    assert {image.path for image in corpus.images} == {None}
    assert len({caption.caption_id for caption in corpus.captions}) == 30


def test_precomputed_captions_hashes_the_features_of_each_image(tmp_path):
    for name in ("train", "dev", "test"):
        write_precomputed(tmp_path, name, 2, 10, ["1", "2"])
    before = [image.features_sha256 for image in PrecomputedCaptions(tmp_path).read(UNUSED).images]
    rows = np.load(tmp_path / "dev_ims.npy")
    rows[5] = 7.0  # the first row of the second image
    np.save(tmp_path / "dev_ims.npy", rows)
    after = [image.features_sha256 for image in PrecomputedCaptions(tmp_path).read(UNUSED).images]
    assert [old != new for old, new in zip(before, after, strict=True)] == [
        False,
        False,
        False,
        True,
        False,
        False,
    ]


def test_precomputed_captions_names_the_inconsistent_count(tmp_path):
    for name in ("train", "dev", "testall"):
        write_precomputed(tmp_path, name, 2, 2, ["1", "2"])
    reader = PrecomputedCaptions(tmp_path, test="testall")
    assert len(reader.read(UNUSED).images) == 6
    with pytest.raises(ValueError, match=r"test_caps\.txt: no such file"):
        PrecomputedCaptions(tmp_path).read(UNUSED)
    np.save(tmp_path / "dev_ims.npy", np.zeros((3, 4), np.float32))
    with pytest.raises(
        ValueError, match=r"dev_ims\.npy has 3 rows for 10 captions: expected 2 rows"
    ):
        reader.read(UNUSED)
    write_precomputed(tmp_path, "dev", 2, 2, ["1"])
    with pytest.raises(
        ValueError, match=r"dev_ids\.txt has 1 lines for 10 captions: expected 2 lines"
    ):
        reader.read(UNUSED)
    write_precomputed(tmp_path, "dev", 2, 2, ["1", "2"], captions=4)
    with pytest.raises(ValueError, match=r"dev_caps\.txt has 8 lines, expected 5 per image"):
        reader.read(UNUSED)


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
def test_precomputed_captions_rejects_invalid_arrays(tmp_path, spoil):
    for name in ("train", "dev", "test"):
        write_precomputed(tmp_path, name, 2, 2, ["1", "2"])
    spoil(tmp_path / "train_ims.npy")
    with pytest.raises(ValueError, match=r"train_ims\.npy is not a complete array of numbers"):
        PrecomputedCaptions(tmp_path).read(UNUSED)
