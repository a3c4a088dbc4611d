"""Predictions of the stages that make a model searchable; they run on the processor."""

from bifocal.planning.simulation import Work
from bifocal.planning.training import EmbeddingCost
from bifocal.search.index.approximate import TRAINING_PER_LIST, choose_factory
from bifocal.search.index.build import EXACT
from components.build_index.spec import BuildIndexParams
from components.embed_collection.spec import EmbedCollectionParams
from pipelines.plan.devices import processor
from pipelines.plan.plan import StagePlan
from pipelines.plan.stages import PROCESS, Sizes

ITEM_BYTES, CAPTION_BYTES = 140, 40
"""Bytes of a row of ``items.parquet``: ids, path, SHA-256 and sizes; and of each of its captions."""
BOX_BYTES, NUMBER_BYTES = 16, 2
ROW_IN_MEMORY = 1_000
KMEANS_ITERATIONS = 10
"""Iterations of faiss, which clusters the vectors of an inverted file."""


def embed_collection(params: EmbedCollectionParams, embedding: EmbeddingCost, sizes: Sizes) -> StagePlan:
    """Predict the collection of the dataset's images: vectors in float16, and those of regions with their boxes.

    Stored features are read again; images of pixels are decoded and pass through the network again.
    """
    images, dim = sizes.corpus.total_images, embedding.dim or 0
    count, region_dim = embedding.regions if params.regions and params.source is None else (0, 0)
    vectors = NUMBER_BYTES * dim + count * (NUMBER_BYTES * region_dim + BOX_BYTES)
    features, work, weights = sizes.features, embedding.image, embedding.weights
    batch, decoding = 0, sizes.decoding(images)
    if features is not None and features.pixels is None and params.source is None:
        batch, decoding = 5 * params.batch_size * features.image_bytes, 0.0
    elif features is not None and features.work is not None:
        work, weights = work.plus(features.work), weights + features.weights_bytes
        batch = 5 * params.batch_size * features.preprocessed_bytes
    host = PROCESS + sizes.tables + ROW_IN_MEMORY * images + 2 * weights + batch + embedding.peak
    shard = 2 * vectors * min(params.items_per_shard, images)
    rows = ITEM_BYTES * images + CAPTION_BYTES * sizes.corpus.total_captions
    seconds = max(decoding, processor(sizes.device.cores).seconds(work.times(images), "float32"))
    return StagePlan("embed_collection", {"collection": vectors * images + rows}, host + shard, seconds=seconds)


def build_index(params: BuildIndexParams, embedding: EmbeddingCost, sizes: Sizes) -> StagePlan:
    """Predict the index: a copy of the vectors and, above some size, an inverted file of at most a byte per number."""
    images, dim = sizes.corpus.total_images, embedding.dim or 0
    factory: str | None = None if params.factory == EXACT else params.factory
    if factory == "auto":
        factory = choose_factory(images, dim, params.memory_mb, params.latency_ms)
    lists = 0 if factory is None else round(4 * images**0.5)
    trained = min(images, TRAINING_PER_LIST * lists)
    searched = 0 if factory is None else images * (dim + 8)
    stored = images * (NUMBER_BYTES * dim + ITEM_BYTES) + CAPTION_BYTES * sizes.corpus.total_captions
    clustering = Work(2 * KMEANS_ITERATIONS * trained * lists * dim + 2 * images * lists * dim)
    host = PROCESS + sizes.tables + ROW_IN_MEMORY * images + stored + searched + 4 * trained * dim
    seconds = 60 + processor(sizes.device.cores).seconds(clustering, "float32")
    return StagePlan("build_index", {"index": stored + searched}, host, seconds=seconds)
