"""Collections and indexes: items are deleted from a run, and a folder is indexed."""

import shutil
from collections.abc import Collection as Container
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import Description, ModelIdentity
from bifocal.search.collection.writer import CollectionWriter, Item
from bifocal.search.index.build import index_of_collection
from bifocal.search.index.exact import unit_vectors
from bifocal.search.index.index import SearchIndex
from bifocal.search.trained_model import COLLECTION, INDEX, ONNX
from bifocal.serving.service.models import RunSource
from pipelines.app.delete import delete_command
from pipelines.app.demo import unpack
from pipelines.app.index_folder import index_folder
from pipelines.app.run_folder import ARTIFACTS, PARAMETERS, latest_run
from runtime import artifacts


class Delete:
    """Items are deleted from the collection, the index and both manifests of a run."""

    count, dimension = 12, 8

    def prepare(self, folder: Path) -> None:
        """Write a run with images and regions in its collection."""
        (folder / ARTIFACTS).mkdir(parents=True)
        (folder / PARAMETERS).write_text("{}\n")
        partial = artifacts.open_partial(folder / COLLECTION, {})
        description = Description(ModelIdentity("m", None, "ab"), "images", self.dimension, 3)
        writer = CollectionWriter(partial, description, items_per_shard=5)
        (partial / "images").mkdir()
        for row, vector in enumerate(self._vectors()):
            (partial / "images" / f"{row}.jpg").write_bytes(b"jpg")
            item = Item(str(row), f"{row}.jpg", f"{row:064x}", 8, 8)
            writer.add(item, vector, np.full((2, 3), row), np.full((2, 4), row))
        writer.finish({"3": ["secret"]})
        index = artifacts.open_partial(folder / INDEX, {})
        index_of_collection(Collection.open(partial), None).write(index)
        artifacts.commit_all({folder / COLLECTION: partial, folder / INDEX: index}, {})

    def _vectors(self) -> NDArray[np.float16]:
        return unit_vectors(
            np.random.default_rng(0).normal(size=(self.count, self.dimension))
        ).astype(np.float16)

    def run(self, folder: Path, number: int) -> None:
        """Delete one item."""
        delete_command.main([str(number), "--run", str(folder)], standalone_mode=False)

    def check(self, folder: Path, acknowledged: Container[int]) -> None:
        """Check that collection, index, images and manifests agree; then delete both items, with
        their vectors."""
        latest_run(folder)
        self._check_state(folder, acknowledged)
        self.run(folder, 0)
        self.run(folder, 1)
        self._check_state(folder, {0, 1})
        files = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
        assert not any(
            vector.tobytes() in content for vector in self._vectors()[:2] for content in files
        )

    def _check_state(self, folder: Path, deleted: Container[int]) -> None:
        collection, index = Collection.open(folder / COLLECTION), SearchIndex.open(folder / INDEX)
        for artifact in (COLLECTION, INDEX):
            artifacts.check_files(folder / artifact)
        for row in range(self.count):
            gone = bool(collection.deleted[row])
            assert (
                gone
                == bool(index.removed[row])
                == (not (folder / COLLECTION / "images" / f"{row}.jpg").exists())
            )
            assert gone or row not in deleted, f"{row} is back"
            assert row < 2 or not gone, f"{row} is gone"


class Add:
    """A folder is indexed again in which an image was added, one changed and one deleted since."""

    old, new = {"0", "1", "2"}, {"1", "2", "3"}

    def prepare(self, folder: Path) -> None:
        """Index three images, and change the folder."""
        demo = unpack(folder / "demo")
        images = sorted((folder / "demo" / "images").iterdir())
        (folder / "pictures").mkdir()
        for name, image in zip("012", images, strict=False):
            shutil.copy(image, folder / "pictures" / f"{name}.jpg")
        shutil.copytree(demo.directory / ONNX, folder / "encoders")
        self.run(folder, 0)
        (folder / "pictures" / "0.jpg").unlink()
        shutil.copy(images[5], folder / "pictures" / "1.jpg")
        shutil.copy(images[6], folder / "pictures" / "3.jpg")
        shutil.rmtree(folder / "demo")

    def run(self, folder: Path, number: int) -> None:
        """Index the folder."""
        index_folder(folder / "pictures", folder / "encoders", folder / "run")

    def check(self, folder: Path, acknowledged: Container[int]) -> None:
        """Check that collection, index and encoders are of one state, and index the folder
        again."""
        found = self._items(folder)
        assert found == self.new if acknowledged else found in (self.old, self.new), found
        self.run(folder, 0)
        assert self._items(folder) == self.new
        assert sorted(path.name for path in (folder / "run" / ARTIFACTS).iterdir()) == [
            "collection",
            "index",
            "onnx",
        ]

    def _items(self, folder: Path) -> set[str]:
        served = RunSource(folder / "run").load()
        for artifact in (COLLECTION, INDEX, ONNX):
            artifacts.check_files(folder / "run" / artifact)
        items = {Path(item_id).stem for item_id in served.index}
        assert {Path(item_id).stem for item_id in SearchIndex.open(folder / "run" / INDEX)} == items
        return items
