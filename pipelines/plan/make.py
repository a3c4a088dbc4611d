"""Make the plan of a pipeline from its parameters."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from bifocal.datasets.published import AUTOMATIC, Download, PublishedCorpus, PublishedReader
from bifocal.models.embedding import BATCH
from bifocal.planning.features import ExpectedFeatures, expect_features
from bifocal.planning.initialization import InitializationCost, simulate_initialization
from bifocal.planning.ranking import RankingInputs, simulate_predictions
from bifocal.planning.training import ModelInputs, simulate_embedding
from bifocal.registry import build, suggest
from bifocal.text.expected import ExpectedText
from bifocal.text.vectorizers.base import Expecting
from components.build_index.spec import BuildIndexParams
from components.catalog import configurable_components
from components.embed_collection.spec import EmbedCollectionParams
from components.evaluate.spec import EvaluateParams
from components.extract_features.spec import ExtractFeaturesParams
from components.prepare_dataset.spec import PrepareDatasetParams
from components.pretrain_sorter.spec import PretrainSorterParams
from components.train_embedding.spec import TrainEmbeddingParams
from components.train_ranking_head.spec import TrainRankingHeadParams
from components.vectorize_captions.spec import VectorizeCaptionsParams
from pipelines.plan import ranking_stages, search_stages, stages
from pipelines.plan.devices import Device
from pipelines.plan.plan import Plan, PlannedDownload, StagePlan
from runtime import parameters


def make_plan(values: Mapping[str, Any], device: Device) -> Plan:
    """Return the plan of the pipeline with these values of ``params.yaml``.

    Raises:
        ValueError: the counts of the corpus are not published.
    """
    sections = parameters.validate(dict(values), configurable_components().values())
    dataset = cast(PrepareDatasetParams, sections["prepare_dataset"])
    extraction = cast(ExtractFeaturesParams, sections["extract_features"])
    vectorizer = cast(VectorizeCaptionsParams, sections["vectorize_captions"]).vectorizer
    training = cast(TrainEmbeddingParams, sections["train_embedding"])
    evaluation = cast(EvaluateParams, sections["evaluate"])
    sorter = cast(PretrainSorterParams, sections["pretrain_sorter"])
    corpus = _published(dataset)
    features = expect_features(extraction.extractor, extraction.batch_size, corpus.image_size)
    text = _expected_text(vectorizer, corpus)
    sizes = stages.Sizes(corpus, features, text, device)
    places = {
        "prepare_dataset": dataset.corpus.arguments.get("root"),
        "extract_features": extraction.extractor.arguments.get("path"),
        "vectorize_captions": vectorizer.arguments.get("path"),
    }
    files = {
        "prepare_dataset": corpus.downloads,
        "extract_features": features.downloads if features else (),
        "vectorize_captions": text.downloads if text else (),
    }
    planned = [
        stages.prepare_dataset(dataset, sizes),
        ranking_stages.pretrain_sorter(sorter.training, sorter.length, device),
        stages.extract_features(extraction, sizes),
    ]
    notes: list[str] = []
    if features is None:
        notes.append(f"features and training: {extraction.extractor.name} reads files whose shape is not published")
    if values["pipeline"] == "ranking_head":
        if features is not None:
            planned += _ranking_head(cast(TrainRankingHeadParams, sections["train_ranking_head"]), features, sizes)
        return Plan(device.name, tuple(_downloads(files, places)), tuple(planned), tuple(notes))
    planned.append(stages.vectorize_captions(sizes))
    if text is None:
        reason = (
            f"{vectorizer.name} reads the user's files" if corpus.captions_per_image else "the corpus has no captions"
        )
        notes.append(f"text, training and evaluation: {reason}")
    if features is not None and text is not None:
        inputs = ModelInputs.of(training.model, features, text, corpus)
        embedding, initialization = simulate_embedding(inputs, BATCH), InitializationCost()
        if training.initialization is not None:
            found = simulate_initialization(inputs, training.initialization, corpus)
            if found is None:
                notes.append(f"memory and time of the initialization {training.initialization.name}")
            initialization = found or initialization
        planned += [
            stages.train_embedding(training, inputs, embedding, initialization, sizes),
            stages.evaluate(evaluation, embedding, sizes),
            stages.export_onnx(embedding.weights),
            stages.register_model(embedding.weights),
        ]
        if embedding.dim is not None:
            planned += [
                search_stages.embed_collection(
                    cast(EmbedCollectionParams, sections["embed_collection"]), embedding, sizes
                ),
                search_stages.build_index(cast(BuildIndexParams, sections["build_index"]), embedding, sizes),
            ]
    return Plan(device.name, tuple(_downloads(files, places)), tuple(planned), tuple(notes))


def _ranking_head(params: TrainRankingHeadParams, features: ExpectedFeatures, sizes: stages.Sizes) -> list[StagePlan]:
    """Return the plan of the training, the export and the registration of a ranking head.

    Raises:
        ValueError: the corpus has no labels of the task.
    """
    labels = sizes.corpus.labels
    if params.task not in labels:
        raise ValueError(f"train_ranking_head.task is {params.task!r}; {suggest(params.task, labels)}")
    inputs = RankingInputs(params.head, params.backbone, features, labels[params.task])
    weights = simulate_predictions(inputs).weights
    return [
        ranking_stages.train_ranking_head(params, inputs, sizes),
        ranking_stages.export_ranking_head(weights),
        ranking_stages.register_ranking_head(weights),
    ]


def _published(dataset: PrepareDatasetParams) -> PublishedCorpus:
    reader = build("bifocal.datasets.corpora", dataset.corpus)
    corpus = reader.published() if isinstance(reader, PublishedReader) else None
    if corpus is None:
        raise ValueError(
            f"prepare_dataset.corpus is {dataset.corpus.name}: its counts depend on your files, so there is no plan"
        )
    return corpus


def _expected_text(vectorizer: Any, corpus: PublishedCorpus) -> ExpectedText | None:
    """Return the text of the corpus; the vectorizer of another recipe's text has the words of that recipe's corpus."""
    recipe = _recipe_of(vectorizer.arguments.get("path"))
    if vectorizer.name == "FromText" and recipe is not None:
        values = parameters.load(Path("params.yaml"), [recipe])
        sections = parameters.validate(values, configurable_components().values())
        other = cast(PrepareDatasetParams, sections["prepare_dataset"])
        fitted = cast(VectorizeCaptionsParams, sections["vectorize_captions"]).vectorizer
        return _expected_text(fitted, _published(other))
    part = build("bifocal.text.vectorizers", vectorizer)
    return part.expect(corpus) if isinstance(part, Expecting) and corpus.captions_per_image else None


def _recipe_of(path: str | None) -> Path | None:
    """Return the recipe of the run that writes an artifact: runs/papers/bean_coco/artifacts/text -> its YAML file."""
    found = re.search(r"runs/([^/]+)/([^/]+)/artifacts", path or "")
    recipe = Path("recipes", found[1], f"{found[2]}.yaml") if found else None
    return recipe if recipe is not None and recipe.is_file() else None


def _downloads(
    files: Mapping[str, tuple[Download, ...]], places: Mapping[str, str | None]
) -> Iterator[PlannedDownload]:
    for stage, downloads in files.items():
        for download in downloads:
            folder = places[stage]
            place = download.place
            if folder is not None and place != AUTOMATIC:
                place = f"{folder.rstrip('/')}/{place}".rstrip("/")
            yield PlannedDownload(download, place)
