"""A user's folder of images with captions.csv at an s3:// root, on a real S3 protocol."""

from pathlib import Path

import boto3
import pytest

from bifocal.datasets import read_dataset, remote_files
from bifocal.datasets.corpora import Scenes
from bifocal.onnx.images import open_image
from components.prepare_dataset.run import run
from components.prepare_dataset.spec import COMPONENT, PrepareDatasetParams
from runtime import parameters
from runtime.s3.remote_files import download_user_files, fetch_remote_files

SPLITS = ("train", "train", "train", "val", "test", "train")


@pytest.mark.parametrize("copy_images", [True, False])
def test_folder_at_an_address_is_read_like_a_folder(
    s3: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copy_images: bool
) -> None:
    monkeypatch.setattr(remote_files, "_fetch", None)
    corpus = Scenes(train=6, val=0, test=0, size=64).read(tmp_path / "scenes")
    rows, client = ["image,caption,split"], boto3.client("s3")
    for number, image in enumerate(corpus.images):
        content = (tmp_path / "scenes" / str(image.path)).read_bytes()
        client.put_object(Bucket="bucket", Key=f"photos/holiday/{number}.jpg", Body=content)
        texts = [caption.text for caption in corpus.captions if caption.image_id == image.image_id][
            :2
        ]
        rows += [f'holiday/{number}.jpg,"{text}",{SPLITS[number]}' for text in texts]
    client.put_object(Bucket="bucket", Key="photos/captions.csv", Body="\n".join(rows).encode())
    section = {
        "corpus": {"name": "ImageFolder", "root": "s3://bucket/photos"},
        "copy_images": copy_images,
        "max_pixels": 10_000,
        "max_rejected_fraction": 0.0,
    }
    values = download_user_files({"seed": 0, "prepare_dataset": section}, COMPONENT)
    params = parameters.validate(values, [COMPONENT])["prepare_dataset"]
    assert isinstance(params, PrepareDatasetParams)
    (tmp_path / "dataset").mkdir()
    run(params, dataset=tmp_path / "dataset")
    fetch_remote_files()
    dataset = read_dataset(tmp_path / "dataset")
    assert sorted(dataset.images["image_id"]) == [f"holiday/{number}.jpg" for number in range(6)]
    assert dict(dataset.images["split"].value_counts()) == {"train": 4, "val": 1, "test": 1}
    assert len(dataset.captions) == 12
    path = dataset.image_path("holiday/3.jpg")
    assert open_image(path).size == (64, 64)
    assert path.is_relative_to(tmp_path / ("dataset" if copy_images else "cache"))
