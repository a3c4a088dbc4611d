"""``bifocal train`` and ``bifocal inspect`` of s3://bucket/photos, on a real S3 protocol."""

from pathlib import Path

import boto3
import pytest

from bifocal.datasets import read_dataset
from pipelines.app.stages import run_stages, stages_of_run
from pipelines.app.training.recipe import compose
from tests.pipelines.app.conftest import Command


def upload(photos: Path) -> list[str]:
    """Put 12 images with two captions each on S3; return the names of the images."""
    client = boto3.client("s3")
    lines = (photos / "captions.csv").read_text().splitlines()[:25]
    names = sorted({line.partition(",")[0] for line in lines[1:]})
    for name in names:
        client.upload_file(str(photos / name), "bucket", f"photos/{name}")
    client.put_object(Bucket="bucket", Key="photos/captions.csv", Body="\n".join(lines).encode())
    return names


def test_images_of_a_folder_on_s3_are_copied_to_the_run(
    s3: None,
    photos: Path,
    recipe: Path,
    mlflow_store: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = upload(photos)
    values = compose("s3://bucket/photos", None, (recipe,), ()).values
    run_stages(tmp_path / "run", values, stages_of_run()[:1])
    monkeypatch.setenv("BIFOCAL_CACHE", str(tmp_path / "empty"))
    for name in names:
        boto3.client("s3").delete_object(Bucket="bucket", Key=f"photos/{name}")
    dataset = read_dataset(tmp_path / "run" / "artifacts" / "dataset")
    assert sorted(dataset.images["image_id"]) == names
    assert len(dataset.captions) == 24
    for name in names:
        assert dataset.image_path(name).read_bytes() == (photos / name).read_bytes()


def test_an_address_without_files_is_an_error(
    s3: None, command: Command, tmp_path: Path, recipe: Path
) -> None:
    result = command("train", "s3://bucket/none", "--run", tmp_path / "run", "--recipe", recipe)
    assert isinstance(result.exception, OSError)
    assert "s3://bucket/none" in str(result.exception)


def test_a_folder_on_s3_is_inspected(
    s3: None, photos: Path, command: Command, tmp_path: Path
) -> None:
    names = upload(photos)
    page = tmp_path / "page.html"
    result = command("inspect", "s3://bucket/photos", "--page", page)
    assert result.exit_code == 0, result.output
    assert "photos" in page.read_text()
    boto3.client("s3").put_object(Bucket="bucket", Key=f"photos/{names[0]}", Body=b"no image")
    result = command("inspect", "s3://bucket/photos", "--page", page)
    assert result.exit_code == 1
    assert names[0] in page.read_text()
