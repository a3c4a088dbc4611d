"""Embed a collection: threads decode images while the network runs; known vectors are copied."""

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc

from bifocal.datasets.prefetch import prefetch
from bifocal.onnx.encoders import Array
from bifocal.onnx.files import UnreadableError, model_hash, open_regular
from bifocal.onnx.image_limits import MAX_BYTES
from bifocal.progress import log_line, track
from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import UNKNOWN, Backbone, Description, ModelIdentity
from bifocal.search.collection.image_vectors import ImageVectors
from bifocal.search.collection.presence import check_lost, with_former_values
from bifocal.search.collection.sources import Entry, Source, with_origins
from bifocal.search.collection.update import CollectionUpdate, open_writer, with_former_types
from bifocal.search.collection.writer import CollectionWriter, Item

REASONS_SHOWN = 3
MOST_AT_ONCE = 1024
"""Items that are added together."""
FEATURE_BYTES = 8192
"""Most bytes of an image's features that a collection keeps: pooled layers, not maps."""
Features = Callable[[Sequence[str]], Sequence[Array]]
"""Returns the stored features (R, D) of a dataset's images by their ids."""


class Embedded(NamedTuple):
    """An image to add: its pixels, or the row of its vector in the previous collection; neither
    with features."""

    item: Item
    pixels: Array | None
    row: int | None


@dataclass(frozen=True)
class CollectionEmbedder:
    """Embeds a source into a collection; takes vectors over from ``previous`` for images with equal
    id, SHA-256 and model, or computes them from its features for another model with its backbone.
    ``features`` replace images if the model was exported with them or reads only published
    features.
    """

    onnx: Path
    name: str
    source: Source
    previous: Collection | None = None
    features: Features | None = None
    same_features: bool = False
    batch_size: int = 32
    items_per_shard: int = 4096
    max_pixels: int | None = (
        None  # of an image; None for the limit of ``bifocal.onnx.image_limits.max_pixels``
    )
    max_rejected_fraction: float = 1.0
    regions: bool = True
    feature_bytes: int = FEATURE_BYTES

    def write(self, directory: Path) -> dict[str, float]:
        """Write the collection and return counts and rates; resume after the last complete
        shard."""
        entries = self.source.entries
        vectors, identity = (
            self._open_model(),
            ModelIdentity(self.name, None, model_hash(self.onnx)),
        )
        previous, by_features = self._usable(vectors, identity)
        description = Description(
            identity,
            self.source.root,
            vectors.dimension,
            vectors.region_dimension,
            vectors.preprocessing,
            follow_links=self.source.follow_links,
            backbone=self._kept_backbone(vectors, previous),
        )
        states = self.source.states(entries)
        update = CollectionUpdate(previous, entries, states)
        unknown = [entry for entry in entries if entry.kept]
        if unknown and update.collection is None:
            raise ValueError(
                f"{len(unknown):,} images, such as {_name(unknown[0])}, are not in {self.source.root} "
                "now, and another model, or another choice of regions, needs them: bring them back, "
                "or prune them"
            )
        writer = open_writer(
            directory, description, self.items_per_shard, self.source, entries, states
        )
        run = _Run(self, vectors, update, writer, entries, by_features)
        start = time.perf_counter()
        run.embed()
        seconds = time.perf_counter() - start
        finished = self._finish(run)
        return {
            "items": finished.items,
            "embedded": run.embedded,
            "kept": run.kept,
            "from_features": run.from_features,
            "read": run.read,
            "deleted": finished.deleted,
            "rejected": finished.rejected,
            "dimension": vectors.dimension,
            "images_per_second": run.embedded / seconds,
            "network_images_per_second": run.embedded / vectors.seconds if vectors.seconds else 0.0,
        }

    def _open_model(self) -> ImageVectors:
        vectors = ImageVectors(self.onnx, self.regions)
        if vectors.graph.reads_pixels and not vectors.reads_images:
            raise ValueError(
                f"{self.onnx} has no preprocessing.json: its graph reads pixels, and the "
                "export has no preprocessing that matches the evaluation. Extract ImageFiles "
                "or Pixels with the resize square; with limit for a BEANEncoder of "
                "eval_resize stretch; with aspect for an RMACEncoder"
            )
        if not vectors.reads_images and self.features is None:
            raise ValueError(
                f"no graph of {self.onnx} computes this model's features from images: it reads "
                "published features, so it embeds only the images of its dataset"
            )
        return vectors

    def _finish(self, run: "_Run") -> Description:
        """Write the rejected images, the tombstones and the tables."""
        source, entries = self.source, run.entries
        rejected = [*source.rejected, *run.problems, *run.unread]
        total = len(entries) + len(rejected) - len(run.problems)
        if len(rejected) > self.max_rejected_fraction * total:
            raise ValueError(
                f"{len(rejected)} of {total} images are rejected, {len(rejected) / total:.2%}, "
                f"more than max_rejected_fraction {self.max_rejected_fraction:.2%}. The first: "
                f"{_first(rejected)}. Repair them or raise max_rejected_fraction"
            )
        source.keep(entries)
        broken = {image for image, _ in run.problems}
        if not source.prune:
            former_rows = zip(entries, run.update.rows, strict=True)
            known = {_name(entry) for entry, row in former_rows if row >= 0}
            check_lost([problem for problem in run.problems if problem[0] in known], known)
        lost = [entry.item_id for entry in entries if _name(entry) in broken]
        gone = run.update.tombstones(source.gone, lost)
        metadata = with_origins(source, entries, run.update.dates())
        captions = source.captions
        if self.previous is not None:
            former = self.previous.items.filter(pc.invert(self.previous.items.column("deleted")))
            if metadata is not None:
                metadata, misfits = with_former_types(metadata, former)
                rejected += misfits
            unknown = {entry.item_id for entry in entries if entry.kept or source.unread}
            unknown.update(source.unread_captions)
            captions, metadata = with_former_values(captions, metadata, former, unknown)
        for image, reason in rejected:
            run.writer.reject(image, reason)
        finished = run.writer.finish(captions, metadata, gone, [entry.item_id for entry in entries])
        if not finished.items and source.is_whole:
            raise ValueError(
                f"no image of {source.root} can be embedded. The first problems: "
                f"{_first([*run.problems, *source.rejected])}"
            )
        if finished.rejected:
            log_line(f"rejected: {finished.rejected} images, see rejected.parquet")
        return finished

    def _stored(self, vectors: ImageVectors) -> Features | None:
        """Return features to embed in place of the images; None if the images are decoded."""
        same_features = self.same_features or not vectors.reads_images
        return self.features if same_features and not vectors.graph.reads_pixels else None

    def _kept_backbone(self, vectors: ImageVectors, previous: Collection | None) -> Backbone | None:
        """Return the backbone whose features the collection keeps; None unless all items have
        them."""
        found = vectors.backbone
        if found is None or 2 * found.size > self.feature_bytes or self._stored(vectors):
            return None
        return found if previous is None or previous.description.backbone == found else None

    def _usable(
        self, vectors: ImageVectors, model: ModelIdentity
    ) -> tuple[Collection | None, bool]:
        """Return the previous collection, None if all images are embedded again, and whether to use
        its features in place of its vectors."""
        if self.previous is None:
            return None, False
        theirs = self.previous.description
        same = theirs.model.sha256 == model.sha256
        if same and theirs.region_dimension == vectors.region_dimension:
            return self.previous, False
        if vectors.backbone is None or self._stored(vectors):
            reason = "the model has no backbone of its own, or the run has the features"
        elif theirs.backbone is None:
            reason = "it keeps no features (feature_bytes)"
        elif theirs.backbone != vectors.backbone:
            reason = "its features are of another backbone or preprocessing"
        else:
            log_line(f"{self.previous.directory} has the features of the unchanged images")
            return self.previous, True
        log_line(
            f"{self.previous.directory} is of another model, or has other regions, and {reason}: "
            "all images are embedded"
        )
        return None, False


@dataclass
class _Run:
    """One run of a ``CollectionEmbedder``, with its counts and its rejected images."""

    settings: CollectionEmbedder
    vectors: ImageVectors
    update: CollectionUpdate
    writer: CollectionWriter
    entries: Sequence[Entry]
    by_features: bool  # of the previous collection, which is of another model
    embedded: int = 0
    kept: int = 0
    from_features: int = 0
    read: int = 0
    problems: list[tuple[str, str]] = field(default_factory=list)
    unread: list[tuple[str, str]] = field(default_factory=list)  # they keep their former vectors
    stale: list[int] = field(default_factory=list)  # positions of the unread images

    def embed(self) -> None:
        """Add all entries that a killed run has not written."""
        remaining = self._take_over_shards()
        changed = [position for position in remaining if not self.update.unchanged[position]]
        self.read = len(changed) if self._stored is None else 0
        loaded = prefetch(self._load, changed, 4 * self.settings.batch_size)
        batch, new, total = list[Embedded](), 0, len(self.entries)
        for position in track(
            remaining, "embedding images", total=total, done=total - len(remaining)
        ):
            result = self._unchanged(position) if self.update.unchanged[position] else next(loaded)
            if not isinstance(result, Embedded):
                self.problems.append(result)
                continue
            batch.append(result)
            new += self._is_computed(result)
            if new == self.settings.batch_size or len(batch) == MOST_AT_ONCE:
                self._add(batch)
                batch, new = [], 0
        self._add(batch)
        self.update.unchanged[self.stale] = True

    def _take_over_shards(self) -> list[int]:
        """Take over whole shards of the previous collection; return the positions of the remaining
        entries."""
        done = set(self.writer.written.column("item_id").to_pylist())
        waiting = np.array([entry.item_id not in done for entry in self.entries], bool)
        previous = self.update.collection
        if previous is not None and not self.by_features:
            for number, positions in list(
                self.update.whole_shards(waiting, self.settings.items_per_shard // 2)
            ):
                self.writer.take_over(previous.directory, number, self.update.items(positions))
                waiting[positions] = False
                self.kept += len(positions)
        remaining: list[int] = np.flatnonzero(waiting).tolist()
        return remaining

    def _load(self, position: int) -> Embedded | tuple[str, str]:
        """Read, hash and decode an image, or return its name and why it cannot be embedded."""
        entry = self.entries[position]
        if self._stored is not None:
            width, height = entry.size or (0, 0)
            return Embedded(
                Item(entry.item_id, entry.image, entry.sha256 or "", width, height), None, None
            )
        opener = self.settings.source.opener(entry)  # a failed download is not a fault of the image
        try:
            with open_regular(opener, MAX_BYTES) as opened:
                file = opened.read()
            digest = hashlib.sha256(file).hexdigest()
            if digest == self.update.sha256(position):
                return self._unchanged(position)
            image = self.vectors.decode(file, self.settings.max_pixels)
        except (UnreadableError, OSError) as error:
            if self.update.rows[position] < 0:
                return _name(entry), str(error)
            self.unread.append((_name(entry), f"{error}: its former vector stays"))
            self.stale.append(position)
            item = replace(self.update.item(position), state=UNKNOWN)  # it is read the next time
            return self._unchanged(position)._replace(item=item)
        except ValueError as error:
            return _name(entry), str(error)
        state = self.update.state(position)
        return Embedded(
            Item(entry.item_id, entry.image, digest, image.width, image.height, state),
            image.pixels,
            None,
        )

    def _unchanged(self, position: int) -> Embedded:
        return Embedded(self.update.item(position), None, int(self.update.rows[position]))

    def _is_computed(self, image: Embedded) -> bool:
        return image.row is None or self.by_features

    def _add(self, batch: Sequence[Embedded]) -> None:
        """Embed the new images of a batch, and add all of it in order."""
        computed = [number for number, image in enumerate(batch) if self._is_computed(image)]
        known = {number: image.row for number, image in enumerate(batch) if image.row is not None}
        features: list[Any] = [None] * len(batch)
        collection = self.update.collection
        if known and collection is not None and (self.by_features or self._backbone is not None):
            stored = collection.features(list(known.values()))
            for number, values in zip(known, stored, strict=True):
                features[number] = values
        taken = {} if self.by_features else known
        found = np.zeros((len(batch), self.vectors.dimension), np.float32)
        regions: list[tuple[Any, Any]] = [(None, None)] * len(batch)
        if computed:
            self._read(batch, features)
            inputs = [features[number] for number in computed]
            found[computed], of_regions = self.vectors.encode_inputs(inputs)
            for number, region in zip(computed, of_regions or (), strict=False):
                regions[number] = (
                    region,
                    self.vectors.boxes(batch[number].item.width, batch[number].item.height),
                )
        if taken and collection is not None:
            found[list(taken)] = collection.vectors[list(taken.values())]
            if self.vectors.region_dimension is not None:
                for number, row in taken.items():
                    regions[number] = collection.regions(row) or (None, None)
        for image, vector, (region, boxes), values in zip(
            batch, found, regions, features, strict=True
        ):
            kept = None if self._backbone is None else values
            self.writer.add(image.item, vector, region, boxes, kept)
        self.embedded += len(batch) - len(known)
        self.kept += len(taken)
        self.from_features += len(known) - len(taken)

    def _read(self, batch: Sequence[Embedded], features: list[Any]) -> None:
        """Set the encoder's inputs of the new images in a batch."""
        new = [number for number, image in enumerate(batch) if image.row is None]
        if not new:
            return
        if self._stored is not None:
            inputs = self._stored([batch[number].item.item_id for number in new])
        else:
            pixels = [batch[number].pixels for number in new]
            inputs = self.vectors.read_pixels([image for image in pixels if image is not None])
        for number, values in zip(new, inputs, strict=True):
            features[number] = values

    @property
    def _backbone(self) -> Backbone | None:
        """The backbone whose features are kept."""
        return self.writer.description.backbone

    @property
    def _stored(self) -> Features | None:
        return self.settings._stored(self.vectors)


def _name(entry: Entry) -> str:
    return str(entry.image or entry.item_id)


def _first(problems: Sequence[tuple[str, str]]) -> str:
    return "; ".join(f"{image}: {reason}" for image, reason in problems[:REASONS_SHOWN])
