"""A dataset in memory: its tables and the folder of its images."""

import posixpath
from dataclasses import dataclass, field, replace
from functools import cached_property
from io import BufferedReader
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image

from bifocal.datasets.base import SPLITS, UNCAPTIONED
from bifocal.datasets.remote_files import is_address, local_copy
from bifocal.datasets.tables import (
    CAPTIONS,
    CORRECTIONS,
    CORRECTIONS_FILE,
    IMAGES,
    LABELS,
    METADATA_FILE,
    PHRASES,
    read_table,
)
from bifocal.durable import open_once, path_inside
from bifocal.onnx.files import read_json, typed
from bifocal.onnx.images import decode_image


@dataclass(frozen=True)
class Dataset:
    """The tables of a dataset, in the order of their files; ``bifocal.datasets.tables`` describes
    the columns.

    Attributes:
        image_root: folder of the image files.
        metadata: one row per image with the other values that its corpus has, such as a title or a
            date; only the column ``image_id`` if it has none.
        image_address: address of that folder, such as ``s3://bucket/images``, if the images are not
            on this machine; ``s3://`` if they are in several buckets.
        corrections: what people said about images; right ones are captions, too.
        follow_links: image files may be links out of their folder.
    """

    images: pd.DataFrame
    captions: pd.DataFrame
    phrases: pd.DataFrame
    image_root: Path
    labels: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=LABELS.names))
    image_address: str | None = None
    metadata: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=["image_id"]))
    corrections: pd.DataFrame = field(
        default_factory=lambda: pd.DataFrame(columns=CORRECTIONS.names)
    )
    follow_links: bool = False

    def split(self, name: str) -> "Dataset":
        """Return the images of one split with their captions, phrases and labels.

        Raises:
            ValueError: ``name`` is not train, val or test.
        """
        if name not in (*SPLITS, UNCAPTIONED):
            raise ValueError(f"no split {name!r}; a dataset has {', '.join(SPLITS)}")
        return self._subset(self.images[self.images["split"] == name])

    def first(self, images: int | None) -> "Dataset":
        """Return the first ``images`` images with their captions, phrases and labels; None for
        all."""
        return self if images is None else self._subset(self.images.iloc[:images])

    def _subset(self, images: pd.DataFrame) -> "Dataset":
        def of_images(table: pd.DataFrame) -> pd.DataFrame:
            return table[table["image_id"].isin(images["image_id"])].reset_index(drop=True)

        return replace(
            self,
            images=images.reset_index(drop=True),
            captions=of_images(self.captions),
            phrases=of_images(self.phrases),
            labels=of_images(self.labels),
            metadata=of_images(self.metadata),
            corrections=of_images(self.corrections),
        )

    def image_rows(self, image_ids: pd.Series) -> NDArray[np.int64]:
        """Return the rows (n,) of n images; raise ``KeyError`` for an image that is not in the
        dataset."""
        rows = pd.Series(np.arange(len(self.images)), self.images["image_id"])
        return rows.loc[image_ids].to_numpy()

    def image_path(self, image_id: str) -> Path:
        """Return the file of an image; it is downloaded if the images are at an address.

        Raises:
            KeyError: the dataset has no such image.
            ValueError: the corpus publishes only features, no image files; its path leads out
                of the folder; or no function for addresses is set.
            OSError: the image cannot be downloaded, or has changed since the dataset was written.
        """
        if image_id not in self._paths:
            raise KeyError(f"the dataset has no image {image_id!r}")
        path = self._paths[image_id]
        if path is None:
            raise ValueError(f"image {image_id!r} has no file: its corpus publishes only features")
        if self.image_address is not None:
            return local_copy(posixpath.join(self.image_address, path), self._digests[image_id])
        return path_inside(self.image_root, path, caches=True, follow_links=self.follow_links)

    def open(self, image_id: str) -> BufferedReader:
        """Open the file of an image once, below its folder; the errors are those of
        ``image_path``."""
        path = self.image_path(image_id)
        return path.open("rb") if self.image_address is not None else open_once(path)

    def read(self, image_id: str) -> bytes:
        """Return the bytes of the file of an image, see ``open``."""
        with self.open(image_id) as file:
            return file.read()

    def open_image(self, image_id: str, side: int | None = None) -> Image.Image:
        """Decode the file of an image, see ``bifocal.onnx.images.open_image``."""
        with self.open(image_id) as file:
            try:
                return decode_image(file, None, side)
            except ValueError as error:
                raise ValueError(f"{self._paths[image_id]}: {error}") from error

    @cached_property
    def _digests(self) -> dict[str, str]:
        return dict(zip(self.images["image_id"], self.images["sha256"], strict=True))

    @cached_property
    def _paths(self) -> dict[str, str | None]:
        rows = zip(self.images["image_id"], self.images["path"], strict=True)
        return {image_id: path if isinstance(path, str) else None for image_id, path in rows}


def read_dataset(directory: Path) -> Dataset:
    """Read the dataset in ``directory``.

    Raises:
        FileNotFoundError: a table is missing.
        ValueError: a table does not have its schema, or a row refers to an image that is not in the
            dataset.
    """
    images = read_table(directory / "images.parquet", IMAGES)
    captions = read_table(directory / "captions.parquet", CAPTIONS)
    phrases = read_table(directory / "phrases.parquet", PHRASES)
    labels, corrections = (
        read_table(file, schema) if file.is_file() else pd.DataFrame(columns=schema.names)
        for file, schema in (
            (directory / "labels.parquet", LABELS),
            (directory / CORRECTIONS_FILE, CORRECTIONS),
        )
    )
    metadata = (
        pd.read_parquet(directory / METADATA_FILE)
        if (directory / METADATA_FILE).is_file()
        else pd.DataFrame(columns=["image_id"])
    )
    unknown = set(images["split"]) - {*SPLITS, UNCAPTIONED}
    if unknown:
        raise ValueError(
            f"{directory / 'images.parquet'}, column 'split': {sorted(unknown)}, expected "
            f"{', '.join(SPLITS)}"
        )
    for name, table in (
        ("captions", captions),
        ("phrases", phrases),
        ("labels", labels),
        ("metadata", metadata),
        ("corrections", corrections),
    ):
        orphans = ~table["image_id"].isin(images["image_id"])
        if orphans.any():
            raise ValueError(
                f"{directory / f'{name}.parquet'}, column 'image_id': "
                f"{table['image_id'][orphans].iloc[0]!r} is not in images.parquet: write the "
                "dataset again"
            )
    description = directory / "dataset.json"
    if not description.is_file():
        raise FileNotFoundError(
            f"{description}: no such file; the folder holds no complete dataset"
        )
    found = read_json(description)
    location = typed(str, found.get("image_root"), str(description))
    # Who hands a dataset on may not say this of the links in it.
    follow_links = bool(found.get("follow_links")) and Path(location).is_absolute()
    # An absolute image root replaces the directory; a relative one is inside it.
    address = location if is_address(location) else None
    root = directory / location
    return Dataset(
        images, captions, phrases, root, labels, address, metadata, corrections, follow_links
    )
