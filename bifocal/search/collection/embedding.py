"""Embed a collection: threads decode images while the network runs; known vectors are copied."""

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bifocal.datasets.prefetch import prefetch
from bifocal.progress import log_line, track
from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import Description, ModelIdentity
from bifocal.search.collection.image_vectors import ImageVectors
from bifocal.search.collection.resume import open_writer
from bifocal.search.collection.sources import Entry, Source
from bifocal.search.collection.update import Former
from bifocal.search.collection.writer import CollectionWriter, Item
from bifocal.serving.encoders import Array
from bifocal.serving.identity import model_hash

REASONS_SHOWN = 3
MOST_AT_ONCE = 1024
"""Items that are added together."""
Features = Callable[[Sequence[str]], Sequence[Array]]
"""Returns the stored features (R, D) of a dataset's images by their ids."""


class Embedded(NamedTuple):
    """An image that is ready to be added.

    Attributes:
        item: the image.
        pixels: its preprocessed pixels; None if the vector is known or is computed from features.
        former: row in the former collection; None for an image that must be embedded.
    """

    item: Item
    pixels: Array | None
    former: int | None


@dataclass(frozen=True)
class CollectionEmbedder:
    """Embeds the images of a source into a collection.

    Args:
        onnx: directory of the exported model.
        name: of the model, for ``collection.json``.
        source: the images.
        former: a collection whose vectors are taken over for images with the same id and SHA-256, if the same model
            computed them; its other items become tombstones.
        features: stored features of the images of a dataset, for a model that reads published features alone.
        same_features: whether the model was exported with these features, so that images need not be decoded.
        batch_size: images per forward pass.
        items_per_shard: vectors in a file.
        max_pixels: width x height; a larger image is rejected before it is decoded.
        max_rejected_fraction: fraction in [0, 1] of the images that may be rejected.
        regions: write the vectors of regions too, if the model has a localizer.
    """

    onnx: Path
    name: str
    source: Source
    former: Collection | None = None
    features: Features | None = None
    same_features: bool = False
    batch_size: int = 32
    items_per_shard: int = 4096
    max_pixels: int = 50_000_000
    max_rejected_fraction: float = 1.0
    regions: bool = True

    def write(self, directory: Path, entries: Sequence[Entry], first_shard: bool = True) -> dict[str, float]:
        """Write the collection of ``entries``; return counts and rates.

        A killed run goes on after its last complete shard.

        Args:
            entries: images of the source, all of them or one machine's share.
            first_shard: whether this share lists the tombstones of images that the source has no longer.

        Returns:
            ``items``, of them ``embedded`` and ``kept`` from the former collection; ``read``, image files that were
            hashed; ``deleted``; ``rejected``; images per second of the whole stage, and of the networks alone.

        Raises:
            ValueError: the model has no single vector for an image, it cannot read these images, more images are
                rejected than ``max_rejected_fraction`` allows, or no image is valid.
        """
        vectors = ImageVectors(self.onnx, self.regions)
        if vectors.graph.reads_pixels and not vectors.reads_images:
            raise ValueError(
                f"{self.onnx} has no preprocessing.json: its graph reads pixels, and no resizing gives those that it "
                "was evaluated with. Extract ImageFiles or Pixels with the resize square; with limit for a BEANEncoder "
                "of eval_resize stretch; with aspect for an RMACEncoder"
            )
        if not vectors.reads_images and self.features is None:
            raise ValueError(
                f"no graph of {self.onnx} computes this model's features from images: it reads published features, so "
                "it embeds the images of its dataset alone"
            )
        identity = ModelIdentity(self.name, None, model_hash(self.onnx))
        description = Description(
            identity, self.source.root, vectors.dimension, vectors.region_dimension, vectors.graph.preprocessing
        )
        states, usable = self.source.states(entries), self._usable(description)
        former = Former(usable, entries, states)
        writer = open_writer(directory, description, self.items_per_shard, self.source, entries, states)
        done = set(writer.written.column("item_id").to_pylist())
        waiting = np.array([entry.item_id not in done for entry in entries], bool)
        start, counts = time.perf_counter(), {"embedded": 0, "kept": 0}
        if usable is not None:
            for number, positions in list(former.whole_shards(waiting, self.items_per_shard // 2)):
                writer.take_over(usable.directory, number, former.items(positions))
                waiting[positions] = False
                counts["kept"] += len(positions)
        remaining = np.flatnonzero(waiting).tolist()
        changed = [position for position in remaining if not former.unchanged[position]]
        counts["read"] = len(changed) if self._stored(vectors) is None else 0
        loaded = prefetch(
            lambda position: self._load(entries[position], position, former, vectors), changed, 4 * self.batch_size
        )
        batch: list[Embedded] = []
        problems: list[tuple[str, str]] = []
        new = 0
        for position in track(remaining, "embedding images", total=len(entries), done=len(entries) - len(remaining)):
            result = _kept(former, position) if former.unchanged[position] else next(loaded)
            if not isinstance(result, Embedded):
                problems.append(result)
                continue
            batch.append(result)
            new += result.former is None
            if new == self.batch_size or len(batch) == MOST_AT_ONCE:
                self._add(batch, vectors, writer, former, counts)
                batch, new = [], 0
        self._add(batch, vectors, writer, former, counts)
        seconds = time.perf_counter() - start
        rejected = [*(self.source.rejected if first_shard else ()), *problems]
        self._check_fraction(rejected, len(entries) + len(rejected) - len(problems))
        for image, reason in rejected:
            writer.reject(image, reason)
        self.source.keep(entries)
        broken = {image for image, _ in problems}
        gone = former.gone(
            {entry.item_id for entry in self.source.entries} if first_shard else None,
            {entry.item_id for entry in entries if str(entry.image or entry.item_id) in broken} if broken else (),
        )
        order = [entry.item_id for entry in entries]
        finished = writer.finish(self.source.captions, self.source.metadata, gone, order)
        if not finished.items and len(entries) == len(self.source.entries):
            first = "; ".join(f"{image}: {reason}" for image, reason in problems[:REASONS_SHOWN])
            raise ValueError(f"no image of {self.source.root} can be embedded. The first problems: {first}")
        if finished.rejected:
            log_line(f"rejected: {finished.rejected} images, see rejected.parquet")
        return {
            "items": finished.items, **counts, "deleted": finished.deleted, "rejected": finished.rejected,
            "dimension": vectors.dimension,
            "images_per_second": counts["embedded"] / seconds,
            "network_images_per_second": counts["embedded"] / vectors.seconds if vectors.seconds else 0.0,
        }  # fmt: skip

    def _check_fraction(self, rejected: Sequence[tuple[str, str]], total: int) -> None:
        allowed = self.max_rejected_fraction
        if len(rejected) > allowed * total:
            first = "; ".join(f"{image}: {reason}" for image, reason in rejected[:REASONS_SHOWN])
            raise ValueError(
                f"{len(rejected)} of {total} images are rejected, {len(rejected) / total:.2%}, more than "
                f"max_rejected_fraction {allowed:.2%}. The first: {first}. Repair them or raise max_rejected_fraction"
            )

    def _usable(self, description: Description) -> Collection | None:
        if self.former is None:
            return None
        theirs = self.former.description
        same = theirs.model.sha256 == description.model.sha256
        if not same or theirs.region_dimension != description.region_dimension:
            log_line(f"{self.former.directory} is of another model, or has other regions: all images are embedded")
            return None
        return self.former

    def _load(self, entry: Entry, position: int, former: Former, vectors: ImageVectors) -> Embedded | tuple[str, str]:
        """Read, hash and decode an image, or return its name and why it cannot be embedded."""
        if self._stored(vectors) is not None:
            width, height = entry.size or (0, 0)
            return Embedded(Item(entry.item_id, entry.image, entry.sha256 or "", width, height), None, None)
        try:
            file = self.source.open(entry).read_bytes()
            digest = hashlib.sha256(file).hexdigest()
            if digest == former.sha256(position):
                return _kept(former, position)
            image = vectors.decode(file, self.max_pixels)
        except ValueError as error:
            return str(entry.image or entry.item_id), str(error)
        except OSError as error:
            return str(entry.image or entry.item_id), error.strerror or str(error)
        item = Item(entry.item_id, entry.image, digest, image.width, image.height, former.state(position))
        return Embedded(item, image.pixels, None)

    def _add(
        self,
        batch: Sequence[Embedded],
        vectors: ImageVectors,
        writer: CollectionWriter,
        former: Former,
        counts: dict[str, int],
    ) -> None:
        """Embed the new images of a batch, and add all of it in order."""
        new = [number for number, entry in enumerate(batch) if entry.former is None]
        rows = [entry.former for entry in batch if entry.former is not None]
        found = np.zeros((len(batch), vectors.dimension), np.float32)
        regions: list[tuple[Any, Any]] = [(None, None)] * len(batch)
        if new:
            encoded, of_regions = self._encode([batch[number] for number in new], vectors)
            found[new] = encoded
            for number, region in zip(new, of_regions or (), strict=False):
                regions[number] = region, vectors.boxes(batch[number].item.width, batch[number].item.height)
        if rows and former.collection is not None:
            old = [number for number, entry in enumerate(batch) if entry.former is not None]
            found[old] = former.collection.vectors[rows]
            if vectors.region_dimension is not None:
                for number, row in zip(old, rows, strict=True):
                    regions[number] = former.collection.regions(row) or (None, None)
        for entry, vector, (region, boxes) in zip(batch, found, regions, strict=True):
            writer.add(entry.item, vector, region, boxes)
        counts["embedded"] += len(new)
        counts["kept"] += len(rows)

    def _encode(self, batch: Sequence[Embedded], vectors: ImageVectors) -> tuple[Array, list[Array] | None]:
        stored = self._stored(vectors)
        if stored is not None:
            return vectors.encode_inputs(stored([entry.item.item_id for entry in batch]))
        return vectors.encode_images([entry.pixels for entry in batch if entry.pixels is not None])

    def _stored(self, vectors: ImageVectors) -> Features | None:
        """Return the features to embed in place of the images; None if the images are decoded."""
        replaceable = not vectors.graph.reads_pixels and (self.same_features or not vectors.reads_images)
        return self.features if replaceable else None


def _kept(former: Former, position: int) -> Embedded:
    """Return an unchanged image."""
    return Embedded(former.item(position), None, int(former.rows[position]))
