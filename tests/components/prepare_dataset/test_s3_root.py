"""Images of an s3:// root without copies: every machine reads them from the address."""

import json
from pathlib import Path

import boto3
import pytest

from bifocal.datasets import read_dataset, remote_files
from bifocal.onnx.images import open_image
from components.prepare_dataset.run import run
from components.prepare_dataset.spec import COMPONENT, PrepareDatasetParams
from runtime import parameters
from runtime.s3.remote_files import download_user_files, fetch_remote_files
from runtime.s3.uri import StorageError, cache_path
from tests.flickr8k_bucket import ADDRESS, upload_scenes

SECTION = {"copy_images": False, "max_pixels": 10_000, "max_rejected_fraction": 0.0}


@pytest.fixture
def dataset(s3: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataset that another machine wrote: its local copies are gone."""
    upload_scenes(tmp_path / "scenes", train=3, val=2, test=2)
    monkeypatch.setenv("BIFOCAL_CACHE", str(tmp_path / "first"))
    section = {**SECTION, "corpus": {"name": "Flickr8k", "root": ADDRESS}}
    values = download_user_files({"seed": 0, "prepare_dataset": section}, COMPONENT)
    params = parameters.validate(values, [COMPONENT])["prepare_dataset"]
    assert isinstance(params, PrepareDatasetParams)
    (tmp_path / "dataset").mkdir()
    assert run(params, dataset=tmp_path / "dataset")["images"] == 7
    (tmp_path / "first").rename(tmp_path / "gone")
    monkeypatch.setenv("BIFOCAL_CACHE", str(tmp_path / "second"))
    monkeypatch.setattr(remote_files, "_fetch", None)
    return tmp_path / "dataset"


def test_images_are_read_from_the_address_on_another_machine(dataset: Path, tmp_path: Path) -> None:
    assert json.loads((dataset / "dataset.json").read_text())["image_root"] == f"{ADDRESS}/images"
    assert not (dataset / "images").exists()
    tables = read_dataset(dataset)
    first, *others = tables.images["image_id"]
    fetch_remote_files()
    path = tables.split("train").image_path(first)
    assert path == cache_path(f"{ADDRESS}/images/{first}")
    assert open_image(path).size == (64, 64)
    boto3.client("s3").delete_object(Bucket="bucket", Key=f"flickr8k/images/{first}")
    assert tables.image_path(first) == path  # downloaded once
    assert [file.name for file in path.parent.iterdir()] == [first]  # the others are not downloaded
    boto3.client("s3").delete_object(Bucket="bucket", Key=f"flickr8k/images/{others[0]}")
    with pytest.raises(StorageError, match=rf"{others[0]}.*Not Found"):
        tables.image_path(others[0])


def test_image_that_changed_since_is_an_error(dataset: Path) -> None:
    tables = read_dataset(dataset)
    image = tables.images["image_id"][0]
    boto3.client("s3").put_object(Bucket="bucket", Key=f"flickr8k/images/{image}", Body=b"another")
    fetch_remote_files()
    with pytest.raises(StorageError, match=rf"{image} has changed since the dataset was made"):
        tables.image_path(image)


def test_library_without_a_client_of_the_server_says_what_to_do(dataset: Path) -> None:
    tables = read_dataset(dataset)
    with pytest.raises(ValueError, match=r"s3://bucket/flickr8k/images/.*set_fetch"):
        tables.image_path(tables.images["image_id"][0])


def test_splits_of_two_buckets_are_read_from_both(
    s3: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload_scenes(tmp_path / "scenes", train=1, val=1, test=1)
    client = boto3.client("s3")
    client.create_bucket(Bucket="other")
    for entry in client.list_objects_v2(Bucket="bucket")["Contents"]:
        client.copy_object(
            Bucket="other", Key=entry["Key"], CopySource={"Bucket": "bucket", "Key": entry["Key"]}
        )
    monkeypatch.setenv("BIFOCAL_CACHE", str(tmp_path / "first"))
    train, val = (
        {"name": "Flickr8k", "root": root} for root in (ADDRESS, ADDRESS.replace("bucket", "other"))
    )
    section = {**SECTION, "corpus": {"name": "Combined", "train": train, "val": val}}
    values = download_user_files({"seed": 0, "prepare_dataset": section}, COMPONENT)
    params = parameters.validate(values, [COMPONENT])["prepare_dataset"]
    assert isinstance(params, PrepareDatasetParams)
    (tmp_path / "dataset").mkdir()
    run(params, dataset=tmp_path / "dataset")
    monkeypatch.setenv("BIFOCAL_CACHE", str(tmp_path / "second"))
    monkeypatch.setattr(
        remote_files, "_fetch", None
    )  # the previous function is restored after the test
    fetch_remote_files()
    tables = read_dataset(tmp_path / "dataset")
    paths = [tables.image_path(name) for name in tables.images["image_id"]]
    assert [path.relative_to(tmp_path / "second" / "s3").parts[0] for path in paths] == [
        "bucket",
        "other",
    ]
    assert all(open_image(path).size == (64, 64) for path in paths)
