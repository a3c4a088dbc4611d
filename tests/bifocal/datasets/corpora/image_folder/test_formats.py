"""ImageFolder reads the formats that people have: all captions, splits, metadata, groups."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from bifocal.datasets.corpora import ImageFolder
from bifocal.datasets.formats.user_files import Reading, read_user_files
from bifocal.datasets.splits import draw_groups
from tests.bifocal.datasets.corpora.image_folder.writers import (
    ROWS,
    prepare,
    write_csv,
    write_jsonl,
    write_list_jsonl,
    write_shards,
    write_sidecars,
)

FORMATS: dict[str, Callable[[Path], None]] = {
    "csv": lambda root: write_csv(root / "captions.csv"),
    "semicolons": lambda root: write_csv(root / "captions.csv", delimiter=";"),
    "tsv": lambda root: write_csv(root / "captions.tsv", delimiter="\t"),
    "Excel's first line": lambda root: write_csv(
        root / "captions.csv", "sep=,\nimage,caption", ";"
    ),
    "open_clip": lambda root: write_csv(root / "captions.tsv", "filepath,title", "\t"),
    "upper case": lambda root: write_csv(root / "Captions.CSV", "Image ,CAPTION"),
    "spelled": lambda root: write_csv(root / "captions.csv", "File Name,Description"),
    "bom": lambda root: (root / "captions.csv").write_text(
        "\n".join(["image,caption", *map(",".join, ROWS)]), encoding="utf-8-sig"
    ),
    "utf16": lambda root: (root / "captions.csv").write_text(
        "\n".join(["image,caption", *map(",".join, ROWS)]), encoding="utf-16"
    ),
    "crlf": lambda root: (root / "captions.csv").write_bytes(
        "\r\n".join(["image,caption", *map(",".join, ROWS)]).encode()
    ),
    "cr": lambda root: (root / "captions.csv").write_bytes(
        "\r".join(["image,caption", *map(",".join, ROWS)]).encode()
    ),
    "huggingface": lambda root: write_jsonl(root / "metadata.jsonl"),
    "lists": lambda root: write_list_jsonl(root / "captions.jsonl"),
    "parquet": lambda root: pd.DataFrame(ROWS, columns=["image", "text"]).to_parquet(
        root / "captions.parquet"
    ),
    "sidecars": write_sidecars,
    "webdataset": write_shards,
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_all_captions_of_all_images(
    name: str, root: Path, tmp_path: Path
) -> None:
    FORMATS[name](root)
    dataset, rejected = prepare(root, tmp_path)
    assert rejected.empty
    assert sorted(dataset.captions["text"]) == sorted(text for _, text in ROWS)
    assert dataset.captions.groupby("image_id").size().tolist() == [2] * 10
    counts = dataset.images["split"].value_counts()
    assert counts.sum() == 10
    assert counts[["train", "val", "test"]].gt([0, 1, 1]).all()
    files = {path.suffix for path in (tmp_path / "dataset" / "images").rglob("*") if path.is_file()}
    assert files == {".jpg"}


def test_a_zip_file_is_a_root(root: Path, tmp_path: Path) -> None:
    write_csv(root / "captions.csv")
    archive = tmp_path / "photos.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for path in root.iterdir():
            packed.write(path, f"photos/{path.name}")
    dataset, rejected = prepare(archive, tmp_path)
    assert rejected.empty
    assert len(dataset.captions) == 20
    assert dataset.image_path("photos/3.jpg").read_bytes() == (root / "3.jpg").read_bytes()


def test_metadata_is_kept_with_its_types(root: Path, tmp_path: Path) -> None:
    lines = [
        "image,caption,year,city",
        *(f"{number}.jpg,a text,{1990 + number},Rome" for number in range(10)),
    ]
    (root / "captions.csv").write_text("\n".join(lines))
    dataset, _ = prepare(root, tmp_path)
    assert dataset.metadata["meta.city"].tolist() == ["Rome"] * 10
    assert (
        dataset.split("val").metadata["image_id"].tolist()
        == dataset.split("val").images["image_id"].tolist()
    )
    jsonl = "\n".join(
        json.dumps(
            {"image": f"{number}.jpg", "text": "a", "n": number, "mixed": [1, "a"][number % 2]}
        )
        for number in range(10)
    )
    (root / "captions.csv").unlink()
    (root / "captions.jsonl").write_text(jsonl)
    dataset, _ = prepare(root, tmp_path)
    assert dataset.metadata["meta.n"].tolist() == list(range(10))
    assert dataset.metadata["meta.mixed"].tolist() == ["1", "a"] * 5


def test_given_splits_and_phrases(root: Path, tmp_path: Path) -> None:
    splits = ["train"] * 6 + ["validation", "dev", "test", "Test"]
    phrases = json.dumps([{"phrase": "a star", "boxes": [[1, 2, 10, 12]]}]).replace('"', '""')
    lines = [f'{number}.jpg,a star here,{splits[number]},"{phrases}"' for number in range(10)]
    (root / "captions.csv").write_text("\n".join(["image,caption,split,phrases", *lines]))
    dataset, rejected = prepare(root, tmp_path)
    assert rejected.empty
    assert dataset.images["split"].tolist() == ["train"] * 6 + ["val"] * 2 + ["test"] * 2
    assert dataset.phrases["boxes"][0].tolist() == [[1, 2, 10, 12]]


def test_groups_and_near_duplicates_stay_together(root: Path, tmp_path: Path) -> None:
    """0 and 1 look the same; 2 to 5 are of one photographer."""
    with Image.open(root / "0.jpg") as image:
        image.save(root / "1.jpg", quality=60)
    lines = [
        "image,caption,who",
        *(f"{number}.jpg,text,{'A' if 2 <= number <= 5 else number}" for number in range(10)),
    ]
    (root / "captions.csv").write_text("\n".join(lines))
    for seed in range(12):
        arguments = {"group_column": "who", "val": 0.4, "test": 0.2, "seed": seed}
        splits = {
            image.image_id: image.split
            for image in ImageFolder(root, **arguments).read(tmp_path).images
        }
        assert splits["0.jpg"] == splits["1.jpg"]
        assert len({splits[f"{number}.jpg"] for number in range(2, 6)}) == 1
        assert set(splits.values()) == {"train", "val", "test"}
    one, other = (ImageFolder(root, seed=seed).read(tmp_path).images for seed in (1, 2))
    assert [image.split for image in one] != [image.split for image in other]


@pytest.mark.parametrize("empty", ["", "NA", " ", "null"])
def test_images_without_a_group_are_not_one_group(root: Path, tmp_path: Path, empty: str) -> None:
    lines = [f"{number}.jpg,text,{number if number < 2 else empty}" for number in range(10)]
    (root / "captions.csv").write_text("\n".join(["image,caption,who", *lines]))
    how = Reading(group_column="who", needs_captions=True)
    assert read_user_files(root, tmp_path, how).rows.groups == {"0.jpg": "0", "1.jpg": "1"}


def test_the_draw_does_not_depend_on_the_order() -> None:
    groups = {str(number): str(number // 3) for number in range(30)}
    drawn = draw_groups(groups, {"val": 0.2, "test": 0.1}, seed=5)
    assert drawn == draw_groups(dict(reversed(groups.items())), {"val": 0.2, "test": 0.1}, seed=5)


def test_images_without_captions_are_kept_on_request(root: Path, tmp_path: Path) -> None:
    (root / "captions.csv").write_text("\n".join(["image,caption", *map(",".join, ROWS[:12])]))
    dataset, rejected = prepare(root, tmp_path, val=0.2, test=0.2)
    assert len(dataset.images) == 6
    assert rejected["intentional"].tolist() == [True] * 4
    assert "uncaptioned: true keeps it" in rejected["reason"][0]
    dataset, rejected = prepare(root, tmp_path, val=0.2, test=0.2, uncaptioned=True)
    assert rejected.empty
    assert dataset.split("uncaptioned").images["image_id"].tolist() == [
        "6.jpg",
        "7.jpg",
        "8.jpg",
        "9.jpg",
    ]
    assert set(dataset.split("train").images["image_id"]) < {f"{number}.jpg" for number in range(6)}
