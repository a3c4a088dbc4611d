"""Sources of the stage embed_collection: folders, tables, archives and addresses."""

import io
import json
import tarfile
from pathlib import Path

import boto3
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from bifocal.onnx.images import open_image
from bifocal.search.collection.collection import Collection
from tests.components.embed_collection.conftest import SCENES, embed, rejected


def test_a_folder_without_captions_has_the_same_vectors(
    inputs: dict[str, Path], whole: Path, photos: Path, tmp_path: Path
) -> None:
    (photos / "broken.jpg").write_bytes(b"no image")
    Image.new("RGB", (300, 200)).save(photos / "huge.png")
    metrics = embed(
        inputs, tmp_path / "collection", source=str(photos), max_pixels=20_000, regions=False
    )
    assert (metrics["items"], metrics["rejected"]) == (SCENES, 2)
    collection = Collection.open(tmp_path / "collection")
    assert collection.regions(0) is None
    np.testing.assert_array_equal(collection.vectors[:], Collection.open(whole).vectors[:])
    assert [row["image"] for row in rejected(tmp_path / "collection")] == ["broken.jpg", "huge.png"]
    assert "not an image in a supported format" in rejected(tmp_path / "collection")[0]["reason"]
    assert (
        rejected(tmp_path / "collection")[1]["reason"]
        == "too large: 300 x 200 pixels, more than max_pixels 20000"
    )


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_table_names_images_and_keeps_its_other_columns(
    inputs: dict[str, Path], photos: Path, tmp_path: Path, suffix: str
) -> None:
    names = sorted(path.name for path in photos.iterdir())[:3]
    table = pd.DataFrame(
        {"file_name": [*names, names[0], "gone.jpg"], "price": [1, 2, 3, 4, 5], "text": [*"abcde"]}
    )
    file = photos / f"list.{suffix}"
    write = {
        "csv": lambda: table.to_csv(file, index=False),
        "jsonl": lambda: table.to_json(file, orient="records", lines=True),
        "parquet": lambda: table.to_parquet(file),
    }
    write[suffix]()
    embed(inputs, tmp_path / "collection", source=str(file))
    collection = Collection.open(tmp_path / "collection")
    assert collection.ids == names
    assert [collection.captions(row) for row in range(3)] == [["a", "d"], ["b"], ["c"]]
    assert collection.items.column("meta.price").to_pylist() == [1, 2, 3]
    assert rejected(tmp_path / "collection") == [
        {
            "image": file.name,
            "reason": "1 row names no image of the folder, such as "
            f"{file.name}, {'row' if suffix == 'parquet' else 'line'} "
            f"{6 if suffix == 'csv' else 5}: 'gone.jpg'",
        }
    ]


def test_tar_shards_are_unpacked_and_their_texts_kept(
    inputs: dict[str, Path], whole: Path, photos: Path, tmp_path: Path
) -> None:
    images = sorted(photos.iterdir())
    (tmp_path / "web").mkdir()
    for number, part in enumerate((images[:6], images[6:])):
        with tarfile.open(tmp_path / "web" / f"{number:05d}.tar", "w") as tar:
            for image in part:
                tar.add(image, image.name)
                content = json.dumps({"caption": image.stem, "license": number}).encode()
                info = tarfile.TarInfo(f"{image.stem}.json")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    embed(inputs, tmp_path / "collection", source=str(tmp_path / "web"))
    collection = Collection.open(tmp_path / "collection")
    assert collection.ids == [
        f"{'00000' if n < 6 else '00001'}.tar/{image.name}" for n, image in enumerate(images)
    ]
    assert collection.captions(7) == [images[7].stem]
    assert collection.items.column("meta.license").to_pylist() == [0] * 6 + [1] * (SCENES - 6)
    np.testing.assert_array_equal(collection.vectors[:], Collection.open(whole).vectors[:])
    assert open_image(Path(str(collection.image(0)))).size == (64, 64)
    assert not list((tmp_path / "collection").rglob("images/**/*.json"))


def test_images_at_an_address_are_embedded(
    s3: None, inputs: dict[str, Path], whole: Path, photos: Path, tmp_path: Path
) -> None:
    client = boto3.client("s3")
    for path in photos.iterdir():
        client.put_object(Bucket="bucket", Key=f"photos/{path.name}", Body=path.read_bytes())
    embed(inputs, tmp_path / "collection", source="s3://bucket/photos")
    collection = Collection.open(tmp_path / "collection")
    np.testing.assert_array_equal(collection.vectors[:], Collection.open(whole).vectors[:])
    assert collection.image(0) == f"s3://bucket/photos/{collection.ids[0]}"


def test_sources_without_images_are_refused(inputs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="has no images: expected images and captions"):
        embed(inputs, tmp_path / "collection", source=str(tmp_path / "empty"))
    with pytest.raises(ValueError, match="is not a collection of images"):
        embed(inputs, tmp_path / "collection", source=str(tmp_path / "nothing"))
    pq.write_table(pa.table({"city": ["Oslo"]}), tmp_path / "list.parquet")
    with pytest.raises(ValueError, match="no column is recognized as the image's"):
        embed(inputs, tmp_path / "collection", source=str(tmp_path / "list.parquet"))


@pytest.mark.parametrize("fraction", [0.25, 0.2])
def test_too_many_rejected_images_are_one_error(
    inputs: dict[str, Path], photos: Path, tmp_path: Path, fraction: float
) -> None:
    rows = [{"image": path.name} for path in sorted(photos.iterdir())[:9]] + [
        {"image": "gone.jpg"},
        {"image": ""},
    ]
    (photos / "broken.png").write_bytes(b"no image")
    table = photos / "list.jsonl"
    table.write_text("\n".join(json.dumps(row) for row in [*rows, {"image": "broken.png"}]))
    section = {"source": str(table), "max_rejected_fraction": fraction}
    if fraction == 0.25:  # 3 of 12
        assert embed(inputs, tmp_path / "collection", **section)["rejected"] == 3
        return
    with pytest.raises(
        ValueError,
        match=r"^3 of 12 images are rejected, 25.00%, more than max_rejected_frac.* 20.00%",
    ):
        embed(inputs, tmp_path / "collection", **section)
    assert not (tmp_path / "collection" / "collection.json").exists()
