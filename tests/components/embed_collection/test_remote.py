"""A collection at an address: an update asks S3 for the listing and for changed images, nothing
else."""

from pathlib import Path

import boto3
import numpy as np
import pytest

from bifocal.search.collection.collection import Collection
from bifocal.search.collection.sources import Entry
from runtime.s3.remote_images import S3Images
from runtime.s3.storage import Storage
from runtime.s3.uri import StorageError
from tests.broken_s3 import Faults
from tests.components.embed_collection.conftest import SCENES, embed

ADDRESS = "s3://bucket/photos"


def put(name: str, body: bytes) -> None:
    boto3.client("s3").put_object(Bucket="bucket", Key=f"photos/{name}", Body=body)


@pytest.fixture
def names(photos: Path, faults: Faults) -> list[str]:
    """The photographs in a bucket, with a table of captions; the requests so far are forgotten."""
    names = sorted(path.name for path in photos.iterdir())
    for name in names:
        put(name, (photos / name).read_bytes())
    put("captions.csv", f"image,caption\n{names[0]},a drawing\n".encode())
    faults.seen.clear()
    return names


def objects(faults: Faults) -> list[str]:
    """Return the objects that were read since the last call; listings have a query instead of a
    key."""
    keys = [
        path.partition("?")[0].rpartition("/")[2]
        for method, path in faults.seen
        if "list-type" not in path
    ]
    assert {method for method, _ in faults.seen} <= {"GET"}
    faults.seen.clear()
    return sorted(keys)


def test_a_refresh_reads_only_what_changed(
    inputs: dict[str, Path],
    photos: Path,
    names: list[str],
    faults: Faults,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert embed(inputs, tmp_path / "previous", source=ADDRESS)["read"] == SCENES
    assert objects(faults) == [*names, "captions.csv"]
    put(names[2], (photos / names[7]).read_bytes())
    put("new.png", (photos / names[8]).read_bytes())
    put(names[4], (photos / names[4]).read_bytes())  # the same bytes with a later date
    boto3.client("s3").delete_object(Bucket="bucket", Key=f"photos/{names[1]}")
    faults.seen.clear()
    monkeypatch.setenv("BIFOCAL_CACHE", str(tmp_path / "pod"))  # the disk of another pod
    metrics = embed(
        inputs, tmp_path / "collection", source=ADDRESS, previous=str(tmp_path / "previous")
    )
    assert (metrics["read"], metrics["kept"], metrics["deleted"]) == (2, SCENES - 2, 1)
    assert objects(faults) == [names[2], "captions.csv", "new.png"]
    collection = Collection.open(tmp_path / "collection")
    rows = [collection.ids.index(name) for name in (names[2], names[7])]
    np.testing.assert_allclose(*collection.vectors[rows].astype(float), atol=1e-3)
    assert collection.captions(0) == ["a drawing"]
    assert (
        embed(inputs, tmp_path / "later", source=ADDRESS, previous=str(tmp_path / "collection"))[
            "read"
        ]
        == 0
    )
    assert objects(faults) == []


def test_a_failed_run_continues_and_rejects_no_image(
    inputs: dict[str, Path], whole: Path, names: list[str], faults: Faults, tmp_path: Path
) -> None:
    faults.planned["GET"] = [*["ok"] * 6, *["503"] * 200]  # the listing, the table, four images
    with pytest.raises(StorageError, match="Transferred files are kept"):
        embed(inputs, tmp_path / "collection", source=ADDRESS)
    assert not (tmp_path / "collection").exists()
    faults.planned.clear()
    faults.seen.clear()
    metrics = embed(inputs, tmp_path / "collection", source=ADDRESS)
    assert (metrics["items"], metrics["rejected"]) == (SCENES, 0)
    assert len(objects(faults)) == SCENES - 4
    np.testing.assert_array_equal(
        Collection.open(tmp_path / "collection").vectors[:], Collection.open(whole).vectors[:]
    )


def test_a_cut_body_is_read_again_and_a_replaced_object_is_an_error(
    photos: Path, names: list[str], faults: Faults, tmp_path: Path
) -> None:
    listed = Storage().objects(ADDRESS).items()
    entries = {name: Entry(name, name, etag=tag, length=size) for name, (tag, size) in listed}
    images = S3Images(ADDRESS, tmp_path / "copies")
    faults.planned["GET"] = ["close", "close"]
    assert images.open(entries[names[0]]).read_bytes() == (photos / names[0]).read_bytes()
    assert images.state(entries[names[0]]) != images.state(entries[names[1]])
    put(names[3], b"another image")
    with pytest.raises(StorageError, match=r"PreconditionFailed|412"):
        images.open(entries[names[3]])
    assert images.open(entries[names[0]]).is_file()  # the copy needs no request
