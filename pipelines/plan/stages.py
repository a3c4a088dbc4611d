"""Predictions of the stages, each from the sizes of its parts."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from bifocal.datasets.published import PublishedCorpus
from bifocal.features.store import MAX_BYTES_MAPPED
from bifocal.planning.features import ExpectedFeatures
from bifocal.planning.initialization import InitializationCost
from bifocal.planning.simulation import Work
from bifocal.planning.training import EmbeddingCost, ModelInputs, simulate_step
from bifocal.registry import build
from bifocal.text.expected import ExpectedText
from components.evaluate.spec import EvaluateParams
from components.extract_features.spec import ExtractFeaturesParams
from components.prepare_dataset.spec import PrepareDatasetParams
from components.train_embedding.spec import PhaseParams, TrainEmbeddingParams
from pipelines.plan.devices import DISK_BYTES_PER_SECOND, IMAGES_PER_CORE_AND_SECOND, Device
from pipelines.plan.plan import GB, StagePlan, gpu_peak

PROCESS = round(0.7 * GB)
"""Python with torch, pyarrow and pandas; CUDA adds ``CUDA_LIBRARIES``."""
CUDA_LIBRARIES = 2 * GB
IMAGE_ROW, CAPTION_ROW, PHRASE_ROW, LABEL_ROW = 400, 250, 500, 250
"""Bytes of a row of a table in pandas."""
ENTRY = 1_000
"""Bytes of an image, a caption or a phrase while a corpus is read: the entry, and the row that is written."""
JSON_OBJECTS = 6
"""Memory of parsed JSON relative to its file."""
STORE_ROW = 250
"""Bytes per image and per caption of the rows of open stores."""
TABLE_BYTES = {"image": 110, "caption": 40, "phrase": 45, "label": 5}
"""Bytes of a row in Parquet; an image has the SHA-256 of its file."""


@dataclass(frozen=True)
class Sizes:
    """Everything that the stages share.

    Attributes:
        corpus: counts of the corpus.
        features: None if they depend on the user's files.
        text: of the captions; None for a corpus without captions, or if it depends on the user's files.
        device: machine that the stages run on.
    """

    corpus: PublishedCorpus
    features: ExpectedFeatures | None
    text: ExpectedText | None
    device: Device

    @property
    def process(self) -> int:
        """Memory of a process that has imported its packages."""
        return PROCESS + (CUDA_LIBRARIES if self.device.gpu_bytes else 0)

    @property
    def tables(self) -> int:
        """Memory of the tables of the dataset."""
        corpus = self.corpus
        phrases = corpus.total_images * corpus.phrases_per_image
        labels = corpus.total_images * sum(corpus.labels.values())
        rows = IMAGE_ROW * corpus.total_images + CAPTION_ROW * corpus.total_captions
        return round(rows + PHRASE_ROW * phrases + LABEL_ROW * labels)

    @property
    def stores(self) -> int:
        """Memory of open stores: their rows, boxes and scores, and mapped pages of the features."""
        regions = 0 if self.features is None else 20 * self.features.regions
        rows = (STORE_ROW + regions) * self.corpus.total_images + STORE_ROW * self.corpus.total_captions
        return rows + min(MAX_BYTES_MAPPED, self.feature_bytes)

    @property
    def feature_bytes(self) -> int:
        """Bytes of the feature store."""
        return 0 if self.features is None else self.features.image_bytes * self.corpus.total_images

    def decoding(self, images: float) -> float:
        """Return the seconds in which the cores decode ``images`` image files."""
        return images / (IMAGES_PER_CORE_AND_SECOND * self.device.cores)

    def on_device(self, host: float, tensors: int | None) -> tuple[int, int | None]:
        """Return host and GPU memory of a process: without a GPU the tensors are in host memory."""
        if self.device.gpu_bytes:
            return round(self.process + host), gpu_peak(tensors)
        return round(self.process + host + (tensors or 0)), 0


def prepare_dataset(params: PrepareDatasetParams, sizes: Sizes) -> StagePlan:
    """Predict the tables, and the images if they are copied."""
    corpus = sizes.corpus
    phrases = corpus.total_images * corpus.phrases_per_image
    labels = corpus.total_images * sum(corpus.labels.values())
    counts = {"image": corpus.total_images, "caption": corpus.total_captions, "phrase": phrases, "label": labels}
    written = sum(TABLE_BYTES[kind] * count for kind, count in counts.items())
    written += corpus.file_size * corpus.total_images if params.copy_images else 0
    host = JSON_OBJECTS * corpus.metadata_size + ENTRY * sum(counts.values())
    seconds = sizes.decoding(corpus.total_images) if corpus.file_size else 0.0
    return StagePlan("prepare_dataset", {"dataset": round(written)}, round(PROCESS + host), seconds=seconds)


def extract_features(params: ExtractFeaturesParams, sizes: Sizes) -> StagePlan:
    """Predict the feature store and the weights beside it."""
    features, images = sizes.features, sizes.corpus.total_images
    if features is None:
        return StagePlan("extract_features", gpu=None, seconds=None)
    files = 2 * features.image_bytes * min(params.images_per_file, images)
    decoded = 3 * (params.batch_size or 0) * features.preprocessed_bytes
    host, gpu = sizes.on_device(sizes.tables + files + decoded + 2 * features.weights_bytes, features.extraction_bytes)
    seconds: float | None = None
    if features.work is not None:
        computing = sizes.device.seconds(features.work.times(images), "bfloat16")
        writing = features.image_bytes * images / DISK_BYTES_PER_SECOND
        reading = sizes.decoding(images) if params.batch_size and not features.decodes else 0.0
        seconds = max(computing, writing, reading)
    size = sizes.feature_bytes + features.weights_bytes
    return StagePlan("extract_features", {"features": size}, host, gpu, seconds=seconds)


def vectorize_captions(sizes: Sizes) -> StagePlan:
    """Predict the text store and the fitted vectorizer."""
    corpus, text = sizes.corpus, sizes.text
    if text is None:
        return StagePlan("vectorize_captions", seconds=None)
    words = corpus.words_per_caption
    stored = round(text.caption_bytes(words) * corpus.total_captions)
    tokens = round(words * corpus.total_captions)
    operations = text.flops_per_token * tokens + text.fit_flops
    network = operations > 0
    host, gpu = sizes.on_device(sizes.tables + text.fit_bytes, text.fitted_bytes + 2 * GB if network else 0)
    seconds = sizes.device.seconds(Work(operations), "float32") + tokens / 300_000
    size = {"text": stored + text.fitted_bytes}
    return StagePlan("vectorize_captions", size, host, gpu if network else 0, seconds=seconds)


def train_embedding(
    params: TrainEmbeddingParams,
    inputs: ModelInputs,
    embedding: EmbeddingCost,
    initialization: InitializationCost,
    sizes: Sizes,
) -> StagePlan:
    """Predict the initialization and the training: the heaviest step decides the memory."""
    corpus, features, text = sizes.corpus, inputs.features, inputs.text
    weights, kept = embedding.weights, 0
    peak, state, steps, batch_bytes = max(embedding.peak, initialization.peak), 0, 0, 0
    seconds = max(sizes.device.seconds(initialization.work, "float32"), _reading_seconds(initialization.images, sizes))
    for phase in params.phases:
        batches = build("bifocal.training.batches", phase.batches).expect(corpus)
        batch = features.batch_bytes(batches.images, batches.regions) + text.batch_bytes(batches.captions, inputs.words)
        batch_bytes = max(batch_bytes, batch)
        reading = max(batch / DISK_BYTES_PER_SECOND, sizes.decoding(batches.images) if features.decodes else 0.0)
        for first, last in freezing_spans(phase.epochs, phase.frozen_until):
            step = simulate_step(
                inputs,
                batches,
                loss=phase.loss,
                optimizer=params.optimizer,
                frozen_until=phase.frozen_until,
                epoch=first,
                precision=params.precision,
                micro_batch_size=params.micro_batch_size,
                gradient_checkpointing=params.gradient_checkpointing,
            )
            peak, state = max(peak, step.peak), max(state, step.state)
            computing = sizes.device.seconds(step.work, params.precision)
            seconds += (last - first) * batches.steps * max(computing, reading)
        kept = max(kept, _ranked_bytes(phase, embedding, corpus))
        steps += phase.epochs * batches.steps
        embedded = batches.embedded_images + corpus.images.get("val", 0)
        seconds += phase.epochs * _embedding_seconds(embedding, embedded, corpus.captions("val"), sizes)
    copies = weights * (2 if params.ema_decay else 1)  # of the phase before; of the averaged weights
    # A checkpoint is serialized in host memory; from a GPU, its tensors and new weights are there too.
    checkpoint = 2 * (weights + state) if sizes.device.gpu_bytes else state
    host, gpu = sizes.on_device(
        sizes.tables + sizes.stores + 3 * batch_bytes + checkpoint + kept,
        peak + copies,
    )
    return StagePlan("train_embedding", {"embedding": weights}, host, gpu, steps, seconds)


def evaluate(params: EvaluateParams, embedding: EmbeddingCost, sizes: Sizes) -> StagePlan:
    """Predict the evaluation: embeddings, ranks and resamples of their means."""
    corpus, split = sizes.corpus, params.split
    ranks = any(evaluator.name == "Retrieval" for evaluator in params.evaluators)
    kept = _kept_bytes(embedding, corpus.images.get(split, 0), corpus.captions(split)) if ranks else 0
    queries = corpus.images.get(split, 0) + corpus.captions(split)
    host, gpu = sizes.on_device(
        sizes.tables + sizes.stores + kept + 8 * queries * 20 + 8 * params.bootstrap_resamples * 50,
        embedding.peak,
    )
    seconds = 60 + 2 * _embedding_seconds(embedding, corpus.images.get(split, 0), corpus.captions(split), sizes)
    return StagePlan("evaluate", {"metrics": 400 * queries, "report": 3_000_000}, host, gpu, seconds=seconds)


def export_onnx(weights: int) -> StagePlan:
    """Predict the graphs: weights in float32; the exporter holds them up to four times."""
    return StagePlan("export_onnx", {"onnx": weights}, round(PROCESS + 4 * weights), seconds=120.0)


def register_model(weights: int) -> StagePlan:
    """Predict the registration: MLflow copies the graphs to its store."""
    return StagePlan("register_model", {"registration": weights}, round(PROCESS + weights), seconds=60.0)


def freezing_spans(epochs: int, frozen_until: Mapping[str, int | None]) -> list[tuple[int, int]]:
    """Return the spans of epochs of a phase in which the same modules are frozen."""
    edges = sorted({0, epochs, *(epoch for epoch in frozen_until.values() if epoch and epoch < epochs)})
    return list(pairwise(edges))


def _embedding_seconds(cost: EmbeddingCost, images: int, captions: int, sizes: Sizes) -> float:
    works = cost.image.times(images), cost.caption.times(captions)
    return max(sum(sizes.device.seconds(work, "float32") for work in works), _reading_seconds(images, sizes))


def _reading_seconds(images: int, sizes: Sizes) -> float:
    features = sizes.features
    if features is not None and features.decodes:
        return sizes.decoding(images)
    return 0.0 if features is None else images * features.image_bytes / DISK_BYTES_PER_SECOND


def _ranked_bytes(phase: PhaseParams, embedding: EmbeddingCost, corpus: PublishedCorpus) -> int:
    """Return the memory of the embeddings that the validation of a phase keeps."""
    default = build("bifocal.training.batches", phase.batches).validator.__name__
    validation = build("bifocal.training.validators", phase.validator or default)
    images = corpus.images.get("val", 0)
    kept = validation.kept_images(images)
    return _kept_bytes(embedding, kept, round(kept * corpus.captions_per_image))


def _kept_bytes(embedding: EmbeddingCost, images: int, captions: int) -> int:
    scores = 0 if embedding.kept[0] else 8 * images * captions  # the blocks and their concatenation
    return images * embedding.kept[0] + captions * embedding.kept[1] + scores
