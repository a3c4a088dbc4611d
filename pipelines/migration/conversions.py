"""Values that another value replaces, with what the former one meant."""

from collections.abc import Mapping
from typing import Any

from pipelines.migration.document import MISSING, Document

READERS = ("BottomUpTSV", "PrecomputedFeatures", "ImageArrays")
"""Extractors that read published files."""
WITHOUT_WEIGHTS = (
    "BifocalSorter", "LaplaceSorter", "NeuralSorter", "PairwiseSorter", "PermutahedronSorter", "SoftSorter"
)  # fmt: skip
UNUSED_WITH_PATH = {
    "ElmoLayers": ("projection_dim", "lstm_dim", "filters", "epochs", "learning_rate", "samples"),
    "FisherVectors": ("dim", "epochs", "subsample"),
    "MeanWordVectors": ("dim", "epochs", "subsample"),
}
"""Arguments of vectorizers that a file of the user overrides; version 0.1 ignored them."""
FORMER = {"batch_size": 320, "learning_rate": 0.001, "decay_after": [5, 6, 7], "decay_factor": 0.5, "epochs": 8}
"""Values of ``train_embedding`` in the params.yaml of version 0.1, which its recipes overlay."""
PHASE = "train_embedding.phases.0"


def corpus_root(document: Document, values: Mapping[str, Any]) -> None:
    """Put the folder of the corpus into the corpus."""
    if values["root"] is not None:
        document.put("prepare_dataset.corpus.root", values["root"])


def weights(document: Document, values: Mapping[str, Any]) -> None:
    """Name the one origin of the weights; ``source`` was the folder of features, or of a classifier's images."""
    file, source = values.get("weights"), values.get("source")
    if set(values) == {"weights"} and not str(file).endswith(".safetensors"):  # a part, or null, as in later versions
        document.put("extract_features.weights", file)
        return
    loaded = {"name": "FromFile", "path": file} if file else {"name": "Pretrained"}
    if values.get("pretraining") is not None:
        part = document.part("TrainOnPhrases", values["pretraining"], "TrainOnPhrases")
        document.put("extract_features.weights", part)
    elif values.get("classifier") is not None:
        arguments = dict(values["classifier"])
        arguments["start"] = None if arguments.pop("random_start", False) else loaded
        if arguments.get("task") is None:
            arguments["path"], source = source, None
        document.put("extract_features.weights", {"name": "TrainClassifier", **arguments})
    elif document.get("extract_features.extractor.name") in READERS:
        document.put("extract_features.weights", None)
    elif file or "pretraining" in values:
        document.put("extract_features.weights", loaded)
    if source is not None:
        document.put("extract_features.extractor.path", source)


def text_source(document: Document, values: Mapping[str, Any]) -> None:
    """Put the user's file into the vectorizer, and leave out what it overrides."""
    if values["source"] is None:
        return
    document.put("vectorize_captions.vectorizer.path", values["source"])
    name = document.get("vectorize_captions.vectorizer.name")
    for argument in UNUSED_WITH_PATH.get(str(name), ()):
        value = document.pop(f"vectorize_captions.vectorizer.{argument}")
        if value is not MISSING:
            document.notes.append(
                f"vectorize_captions.vectorizer.{argument}: {value!r} is left out, it had no effect with a file"
            )


def halving(document: Document, values: Mapping[str, Any], key: str) -> None:
    """Name the schedule that halves the learning rate."""
    document.put(key, {"name": "Step", "step_size": values["halve_every"], "gamma": 0.5})


def sorter_training(document: Document) -> str:
    """Train no sorter that has no weights."""
    name = _name(document.get("pretrain_sorter.sorter"))
    if name not in WITHOUT_WEIGHTS or document.get("pretrain_sorter.training") is None:
        return ""
    document.put("pretrain_sorter.training", None)
    return f"pretrain_sorter.training: null, {name} has no weights"


def frozen_words(document: Document, values: Mapping[str, Any]) -> None:
    """Freeze the word embedding in all epochs."""
    if not values["fine_tune_words"]:
        document.put(f"{PHASE}.frozen_until.word_embedding", None)


def batches(document: Document, values: Mapping[str, Any]) -> None:
    """Name the batches: captions, distinct images, mined triplets, or phrases with boxes."""
    size = {"batch_size": values["batch_size"]} if "batch_size" in values else {}
    known = {"batch_size": FORMER["batch_size"]} | size
    if values.get("phrases") is not None:
        _phrase_phases(document, dict(values["phrases"]), known)
    elif values.get("mining") is not None:
        names = {
            "neighbours": "neighbors",  # codespell:ignore neighbours
            "queries": "queries_per_pool", "relevant_each": "positives_per_query",
            "hardest": "triplets_per_pair", "updates": "steps_per_epoch",
        }  # fmt: skip
        mining = {names[key]: value for key, value in values["mining"].items()}
        document.put(f"{PHASE}.batches", {"name": "MinedTriplets", **known, **mining})
    elif values.get("distinct_images"):
        document.put(f"{PHASE}.batches", {"name": "DistinctImageBatches", **known})
    else:
        names = {"captions_per_image": "captions_per_image", "added_captions": "extra_captions_per_image"}
        captions = {names[key]: values[key] for key in names if key in values}
        if size or captions or document.complete:
            document.put(f"{PHASE}.batches", document.part("CaptionBatches", size | captions, "CaptionBatches"))


def _phrase_phases(document: Document, phrases: dict[str, Any], size: Mapping[str, Any]) -> None:
    """Write one phase on phrases and boxes, and one on hard boxes if there was one."""
    boxes = {"name": "PhraseBoxes", **size, "boxes_per_phrase": phrases["boxes_each"]}
    phase = document.get(PHASE)
    first = {"frozen_until": {}} | (dict(phase) if isinstance(phase, Mapping) else {})
    schedule = {"name": "MultiStep", "milestones": FORMER["decay_after"], "gamma": FORMER["decay_factor"]}
    base = {"epochs": FORMER["epochs"], "learning_rate": FORMER["learning_rate"]}
    merged = base | first | {"batches": boxes, "schedule": schedule | first.get("schedule", {})}
    document.put("train_embedding.phases", {"0": merged})
    document.lists.add("train_embedding.phases")
    fine = phrases.get("fine_tuning")
    if fine is not None:
        hard = {**boxes, "negatives_per_phrase": fine["drawn"], "max_negatives": fine["hard_boxes"]}
        second = {"epochs": fine["epochs"], "loss": fine["loss"], "learning_rate": fine["learning_rate"]}
        second |= {"batches": hard, "schedule": {"name": "Constant"}, "frozen_until": {}}
        document.put("train_embedding.phases.1", second)


def decay(document: Document, values: Mapping[str, Any]) -> None:
    """Name the schedule of the learning rate."""
    names = {"decay_after": "milestones", "decay_factor": "gamma"}
    arguments = {names[key]: value for key, value in values.items()}
    document.put(f"{PHASE}.schedule", document.part("MultiStep", arguments, "MultiStep"))


def evaluators(document: Document, values: Mapping[str, Any]) -> None:
    """List the evaluators; version 0.1 ran them all."""
    retrieval = {
        "name": "Retrieval",
        "protocol": values.get("protocol", "full"),
        "ks": values.get("recall_at", [1, 5, 10]),
    }
    if "curve_to" in values and values["curve_to"] != 50:
        retrieval["max_k"] = values["curve_to"]
    pointing: Any = "PointingGame"
    localizer = values.get("pointing")
    if _name(localizer) not in (None, "AutoLocalizer"):
        pointing = {"name": "PointingGame", "localizer": localizer}
    semantic: Any = "SemanticRetrieval"
    if values.get("triplets") is not None:
        semantic = {"name": "SemanticRetrieval", "human_triplets": values["triplets"]}
    listed = [retrieval, pointing, "PhraseLocalization", "ObjectLocalization", semantic]
    if "pointing" in values and localizer is None:
        listed.remove(pointing)
    document.put("evaluate.evaluators", [*listed, "TextModifiers", "SimilarImages", "DataQuality"])


def champion(document: Document, values: Mapping[str, Any]) -> None:
    """Explain how a run is compared with a registered model."""
    if values["champion"] is not None:
        document.notes.append(
            f"evaluate.champion: {values['champion']!r} is left out; 'python -m pipelines compare' compares a run with "
            "the registered champion"
        )


def checkpoint_time(document: Document, values: Mapping[str, Any]) -> None:
    """Replace steps by seconds, which nothing converts into each other."""
    (steps,) = values.values()
    if document.complete:
        document.put("train_embedding.checkpoint_every_seconds", 300.0)
    document.notes.append(
        f"train_embedding: checkpoints were written every {steps} steps, and are now every 300 seconds"
    )


def learning_rates(document: Document, values: Mapping[str, Any]) -> None:
    """Keep one learning rate."""
    *others, kept = values["learning_rates"]
    document.put("train_ranking_head.phases.0.learning_rate", kept)
    if others:
        document.notes.append(
            f"train_ranking_head.learning_rates: {[*others, kept]} were tried, and {kept} is kept; try the others with "
            "--set train_ranking_head.phases.0.learning_rate=..."
        )


def reader_batch(document: Document) -> str:
    """Published features run no network, so they have neither weights nor a batch size."""
    name = _name(document.get("extract_features.extractor"))
    if name not in READERS or document.get("extract_features.batch_size") is None:
        return ""
    document.put("extract_features.batch_size", None)
    return f"extract_features.batch_size: null, {name} runs no network"


def _name(reference: Any) -> Any:
    """Return the name of a part; the reference itself if it is no mapping."""
    return reference.get("name") if isinstance(reference, Mapping) else reference


def late_interaction(document: Document) -> str:
    """Name the pipeline of a model that has no collection."""
    if document.get("train_embedding.model.name") != "GroundingModel" or document.get("pipeline") is not MISSING:
        return ""
    document.values.insert(1 if "seed" in document.values else 0, "pipeline", "late_interaction")
    return "pipeline: late_interaction is new, for a GroundingModel"
