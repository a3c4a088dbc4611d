"""Collection and index of a folder of images by given encoders, in a run folder, and the changes of
the folder."""

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bifocal.datasets.formats.folder import READ, is_written
from bifocal.durable import complete, link
from bifocal.durable.cached import cached_folder, kept
from bifocal.hubness.bank import HubnessBank
from bifocal.onnx.encoders import Embedder, scores_pairs
from bifocal.onnx.files import model_hash
from bifocal.onnx.pointing import FOLDER as POINTING
from bifocal.onnx.pointing.similarity import PROMPT
from bifocal.search.calibration.fitting import MIN_ITEMS, calibrate_by_names, read_names
from bifocal.search.collection.collection import Collection
from bifocal.search.collection.embedding import FEATURE_BYTES, CollectionEmbedder
from bifocal.search.collection.format import DESCRIPTION, REJECTED
from bifocal.search.collection.presence import live_images, with_unknown
from bifocal.search.collection.sources import Source, files_source
from bifocal.search.index.build import IndexSettings, build_index, index_of_collection
from bifocal.search.index.index import SearchIndex
from bifocal.search.trained_model import COLLECTION, INDEX, ONNX
from runtime import artifacts

BATCH = 32
MIN_SHARD, SHARDS = 256, 128
"""A killed run repeats at most one shard, so shards are small; large collections have about this
number of them."""
QUERIES = 200
"""Images that choose the effort of an approximate index: a folder without captions has no other
queries."""
QUIET_MS, LOOK_MS = 1000, 500
"""Changes that follow each other within ``QUIET_MS`` are one; milliseconds."""


@dataclass(frozen=True)
class Indexed:
    """Numbers of images after an index was written, the broken files with reasons, and the images
    per second."""

    images: int
    new: int
    changed: int
    removed: int
    broken: list[tuple[str, str]]
    rate: float


def index_folder(
    directory: Path,
    encoders: Path,
    folder: Path,
    bank: Path | None = None,
    pointing: Path | None = None,
    *,
    prune: bool = False,
    follow_links: bool = False,
    feature_bytes: int = FEATURE_BYTES,
) -> Indexed:
    """Write encoders, collection and index of a folder of images to a run folder.

    Vectors of unchanged images are taken over from its previous collection. A killed call goes on
    after its last shard; the previous collection answers until the new one is complete.

    Args:
        encoders: folder of an exported model.
        bank: folder of a trained embedding, whose ``HubnessBank`` corrects scores; None for
            pretrained encoders, whose scores are calibrated by names.
        pointing: folder of a pointing head that the run folder gets beside encoders without one.
        prune: remove many images that are gone together.
        follow_links: see ``list_folder``.
        feature_bytes: see ``CollectionEmbedder``.

    Raises:
        ValueError: the model has no single vector for an image, or the folder has no image that can
            be decoded.
    """
    if scores_pairs(encoders):
        raise ValueError(
            "the model is of late interaction: no single vector of an image can be stored"
        )
    collection, digest = folder / COLLECTION, model_hash(encoders)
    complete(collection.parent)
    # The partial folder is locked before the files are listed.
    partial = artifacts.open_partial(collection, {"model": digest, "source": str(directory)})
    source, previous = read_source(directory, collection, partial, prune, follow_links)
    known = set() if previous is None else live_images(previous.items).keys()
    size = max(MIN_SHARD, len(source.entries) // SHARDS)
    name = folder.resolve().name
    embedder = CollectionEmbedder(
        encoders,
        name,
        source,
        previous,
        batch_size=BATCH,
        items_per_shard=size,
        regions=False,
        feature_bytes=feature_bytes,
    )
    start = time.perf_counter()
    counts = embedder.write(partial)
    seconds = time.perf_counter() - start
    built = _index(Collection.open(partial), None if bank is None else HubnessBank.read(bank))
    if bank is None and len(built) >= MIN_ITEMS:
        built.calibration = calibrate_by_names(built, *name_vectors(encoders, digest))
    index = artifacts.open_partial(folder / INDEX, {"model": digest})
    built.write(index)
    written = {
        collection: partial,
        folder / INDEX: index,
        **_new_encoders(encoders, pointing, folder / ONNX, digest),
    }
    artifacts.commit_all(written, {"component": "index"})
    live = live_images(Collection.open(collection).items).keys()
    new, embedded = len(live - known), int(counts["embedded"])
    rejected = pq.read_table(collection / REJECTED).to_pylist()
    broken = [(row["image"], row["reason"]) for row in rejected]
    same = previous is not None and (previous.model.sha256 == digest or counts["from_features"])
    return Indexed(
        len(live), new, embedded - new if same else 0, len(known - live), broken, embedded / seconds
    )


def read_source(
    directory: Path, collection: Path, unpacked: Path, prune: bool, follow_links: bool
) -> tuple[Source, Collection | None]:
    """Return the images of a folder and the collection that they update; archives are unpacked to
    ``unpacked``."""
    previous = Collection.open(collection) if (collection / DESCRIPTION).is_file() else None
    files = files_source(directory, unpacked, follow_links=follow_links)
    return with_unknown(files, previous, prune=prune), previous


def _index(collection: Collection, bank: HubnessBank | None) -> SearchIndex:
    exact = index_of_collection(collection, bank)
    rows = np.flatnonzero(~collection.deleted)
    sample = np.random.default_rng(0).choice(rows, min(QUERIES, len(rows)), replace=False)
    return build_index(exact, IndexSettings(), exact.vectors[np.sort(sample)].astype(np.float32))


def name_vectors(encoders: Path, digest: str) -> list[NDArray[np.float32]]:
    """Return the vectors (K, d) of the names and of their queries, which the user's cache keeps."""
    names = read_names()
    texts = {"names.npy": names, "queries.npy": [PROMPT.format(name) for name in names]}

    def write(partial: Path) -> None:
        embedder = Embedder(encoders)
        for file, sentences in texts.items():
            np.save(partial / file, embedder.embed_sentences(sentences))

    folder = cached_folder(kept("names", digest, texts, code=["bifocal.onnx.encoders"]), write)
    return [np.load(folder / file, allow_pickle=False) for file in texts]


def _new_encoders(
    encoders: Path, pointing: Path | None, target: Path, digest: str
) -> dict[Path, Path]:
    """Link or copy the encoders and a pointing head to a partial folder, unless the run folder has
    them."""
    is_known = (target / artifacts.MANIFEST).is_file() and model_hash(target) == digest
    if is_known and (pointing is None or (target / POINTING).is_dir()):
        return {}
    partial = artifacts.open_partial(target, {"model": digest})
    for source, copied in ((encoders, partial), (pointing, partial / POINTING)):
        if source is not None:
            ignored = shutil.ignore_patterns(artifacts.MANIFEST)
            shutil.copytree(source, copied, copy_function=link, ignore=ignored, dirs_exist_ok=True)
    return {target: partial}


def changes(source: Path, run: Path) -> Iterator[None]:
    """Yield once when the files of a source are watched, and then after each change of them,
    without end.

    Args:
        source: folder, table or archive; the images of a table are beside it.
        run: folder whose files are no part of the source.
    """
    from watchfiles import watch
    from watchfiles._rust_notify import WatchfilesRustInternalError

    run = run.resolve()

    folder = source if source.is_dir() else source.parent

    def is_read(_: object, path: str) -> bool:
        if not path.lower().endswith(READ) or Path(path).is_relative_to(run):
            return False
        below = Path(path).relative_to(folder).parents[:-1]
        return not any(is_written(folder / parent) for parent in below)

    def look() -> Iterator[object]:
        while True:
            try:
                yield from watch(
                    folder,
                    watch_filter=is_read,
                    debounce=QUIET_MS,
                    rust_timeout=LOOK_MS,
                    yield_on_timeout=True,
                )
                return
            except WatchfilesRustInternalError:  # a file came whose name is not UTF-8
                yield "a change"

    for number, found in enumerate(look()):
        if (
            found or number == 0
        ):  # without a change: no image came between the first index and the watch
            yield
