"""The files of the static copy: nothing of deleted images, and the size."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bifocal.onnx.files import model_hash
from bifocal.search.collection.format import Description, ModelIdentity
from bifocal.search.collection.writer import CollectionWriter, Item
from bifocal.search.trained_model import ONNX, TrainedModel
from bifocal.serving.service.live.sources import open_served_model
from bifocal.serving.service.served_model import ServedModel
from bifocal.serving.site import writer as site
from bifocal.serving.site.writer import SiteReport, write_site
from tests.bifocal.serving.site.static_copy import DELETED, REMOVED, required_site_files


def test_the_copy_holds_nothing_of_deleted_images(copied: tuple[Path, ServedModel, SiteReport]) -> None:
    copy, served, report = copied
    assert (report.items, report.pictures) == (254, 254)
    (data,) = (copy / "data").iterdir()
    texts = (data / "collection.json").read_text()
    for item_id in (DELETED, REMOVED):
        assert json.dumps(item_id) not in texts
        assert json.dumps(served.items.captions(item_id)[0]) not in texts
    thumbnails = list((data / "thumbnails").iterdir())
    assert len(thumbnails) == 254
    assert max(file.stat().st_size for file in thumbnails) <= 6000
    for file in thumbnails[:5]:
        with Image.open(file) as image:
            assert not set(image.info) & {"exif", "icc_profile", "xmp"}


def test_a_full_disk_drops_no_thumbnail(
    copied: tuple[Path, ServedModel, SiteReport], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full when the second thumbnail is written, after its image was read."""
    served, read = copied[1], site.site_thumbnail

    def read_on_a_full_disk(file: Path, max_pixels: int) -> bytes:
        thumbnail = read(file, max_pixels)
        if not (full := tmp_path / "site.partial" / "1.webp").is_symlink():
            full.symlink_to("/dev/full")
        return thumbnail

    monkeypatch.setattr(site, "site_thumbnail", read_on_a_full_disk)
    with pytest.raises(OSError, match="No space left"):
        site._write_thumbnails(served, np.arange(3), tmp_path / "site.partial")


def test_the_size_of_a_copy_of_5000_images(demo: TrainedModel, tmp_path: Path) -> None:
    required_site_files()
    onnx, shipped = demo.directory / ONNX, demo.collection
    identity = ModelIdentity("demo", None, model_hash(onnx))
    writer = CollectionWriter(tmp_path / "collection", Description(identity, "/", shipped.dimension, None))
    vectors = np.asarray(shipped.vectors[:], np.float32)
    ids = [f"image-{number:06d}" for number in range(5000)]
    for number, item_id in enumerate(ids):
        writer.add(Item(item_id, None, "0" * 64, 0, 0), vectors[number % len(vectors)])
    writer.finish({item_id: shipped.captions(number % len(vectors)) for number, item_id in enumerate(ids)}, None)
    served = open_served_model(onnx, tmp_path / "collection", None, "demo")
    served.index.bias = np.zeros(5000, np.float32)
    report = write_site(served, onnx, tmp_path / "site")
    assert (report.items, report.pictures) == (5000, 0)
    files = sum(file.stat().st_size for file in (tmp_path / "site").rglob("*") if file.is_file())
    assert report.megabytes == pytest.approx(files / 1e6)
    assert report.megabytes <= 25
    with pytest.raises(FileExistsError, match="name a new folder"):
        write_site(served, onnx, tmp_path / "site")
    with pytest.raises(ValueError, match="the collection has no images"):
        write_site(served, onnx, tmp_path / "empty", ids)
    assert not (tmp_path / "empty").exists()
