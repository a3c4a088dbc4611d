"""The changes of the parameters, in the order in which they are applied."""

from functools import partial

from pipelines.migration.changes import (
    Added,
    Adjusted,
    Change,
    Converted,
    RemovedArgument,
    Renamed,
    RenamedArgument,
    RenamedPart,
)
from pipelines.migration.conversions import (
    batches,
    champion,
    checkpoint_time,
    corpus_root,
    decay,
    evaluators,
    frozen_words,
    halving,
    late_interaction,
    learning_rates,
    reader_batch,
    sorter_training,
    text_source,
    weights,
)


def _keys(section: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{section}.{name}" for name in names)


PHASE, RANKING_PHASE = "train_embedding.phases.0", "train_ranking_head.phases.0"
TABLE: tuple[Change, ...] = (
    # 0.2: names of parts
    *(
        RenamedPart("0.2", former, now)
        for former, now in {
            "BeanEncoder": "BEANEncoder", "BeanHeatmap": "BEANHeatmap", "BottomUpTsv": "BottomUpTSV", "Coco": "COCO",
            "CocoInstances": "COCOInstances", "GruEncoder": "GRUEncoder",
            "LoadedWords": "PretrainedWordVectors", "LstmEncoder": "LSTMEncoder", "MeanWords": "MeanWordVectors",
            "MlpHead": "MLPHead", "OwnLocalizer": "AutoLocalizer", "RMac": "RMAC", "RMacEncoder": "RMACEncoder",
            "RegionsAlone": "PerRegionLocalizer", "SmileEncoder": "SMILEEncoder", "SmileRegions": "SMILERegions",
            "SoftMarginLoss": "MultiLabelSoftMarginLoss", "SruEncoder": "SRUEncoder", "SumLoss": "WeightedSumLoss",
            "TfIdf": "TFIDF", "Voc": "VOC",
        }.items()
    ),
    RenamedPart("0.2", "Precomputed", "PrecomputedCaptions", "prepare_dataset.source"),
    RenamedPart("0.2", "Precomputed", "PrecomputedFeatures", "extract_features.features"),
    # 0.2: arguments of parts, by the present name of the part
    RenamedArgument("0.2", "BEANEncoder", "protocol", "eval_resize"),
    RenamedArgument("0.2", "BEANEncoder", "side", "image_size"),
    RenamedArgument("0.2", "BifocalSorter", "widest_gap", "max_gap"),
    RenamedArgument("0.2", "FisherVectors", "centres", "centers"),  # codespell:ignore centres
    RenamedArgument("0.2", "RMAC", "learnt_on", "whitening_images"),
    RenamedArgument("0.2", "RMACEncoder", "side_of_graph", "onnx_image_size"),
    RenamedArgument("0.2", "RecallLoss", "recall_at", "ks"),
    *(
        RenamedArgument("0.2", loss, f"alignment_{name}", f"auxiliary_{name}")
        for loss in ("RecallLoss", "MeanAveragePrecisionLoss", "SpearmanLoss")
        for name in ("weight", "steps")
    ),
    RenamedArgument("0.2", "SemanticTripletLoss", "visual", "visual_weight"),
    RenamedArgument("0.2", "SemanticTripletLoss", "image_to_text", "image_to_text_weight"),
    RenamedArgument("0.2", "SemanticTripletLoss", "text_to_image", "text_to_image_weight"),
    RenamedArgument("0.2", "StructurePreservingLoss", "top", "max_violations"),
    # 0.2: keys of the stages
    Renamed("0.2", "prepare_dataset.source", "prepare_dataset.corpus"),
    Converted("0.2", ("prepare_dataset.root",), "prepare_dataset.corpus.root", corpus_root),
    Renamed("0.2", "extract_features.features", "extract_features.extractor"),
    Renamed("0.2", "extract_features.shard_size", "extract_features.images_per_file"),
    Renamed(
        "0.2", "extract_features.pretraining.scene_weight", "extract_features.pretraining.image_word_weight"
    ),
    Converted(
        "0.2",
        _keys("extract_features", "weights", "pretraining", "classifier", "source"),
        "extract_features.weights, extract_features.extractor.path",
        weights,
    ),
    Converted("0.2", ("vectorize_captions.source",), "vectorize_captions.vectorizer.path", text_source),
    *(
        Renamed("0.2", f"pretrain_sorter.{name}", f"pretrain_sorter.training.{name}")
        for name in ("batch_size", "learning_rate", "vectors_per_epoch", "epochs", "patience", "tolerance", "depths")
    ),
    Converted(
        "0.2",
        ("pretrain_sorter.halve_every",),
        "pretrain_sorter.training.schedule",
        partial(halving, key="pretrain_sorter.training.schedule"),
    ),
    Adjusted("0.2", sorter_training),
    *(
        Renamed("0.2", f"train_embedding.{name}", f"train_embedding.model.{name}")
        for name in ("dim", "image_encoder", "text_encoder")
    ),
    *(Renamed("0.2", f"train_embedding.{name}", f"{PHASE}.{name}") for name in ("loss", "epochs", "learning_rate")),
    Converted("0.2", _keys("train_embedding", "decay_after", "decay_factor"), f"{PHASE}.schedule", decay),
    Renamed("0.2", "train_embedding.train_from", f"{PHASE}.frozen_until"),
    Converted("0.2", ("train_embedding.fine_tune_words",), f"{PHASE}.frozen_until.word_embedding", frozen_words),
    Converted(
        "0.2",
        _keys(
            "train_embedding",
            "batch_size", "captions_per_image", "added_captions", "distinct_images", "mining", "phrases",
        ),
        f"{PHASE}.batches",
        batches,
    ),
    Renamed("0.2", "train_embedding.clip_norm", "train_embedding.max_grad_norm"),
    Renamed("0.2", "train_embedding.average", "train_embedding.ema_decay"),
    Renamed("0.2", "train_embedding.micro_batch", "train_embedding.micro_batch_size"),
    Renamed("0.2", "train_embedding.checkpoint_every", "train_embedding.checkpoint_every_steps"),
    Renamed("0.2", "train_ranking_head.measure", "train_ranking_head.metric"),
    Converted(
        "0.2",
        ("train_ranking_head.halve_every",),
        "train_ranking_head.schedule",
        partial(halving, key="train_ranking_head.schedule"),
    ),
    Converted(
        "0.2",
        _keys("evaluate", "protocol", "recall_at", "curve_to", "pointing", "triplets"),
        "evaluate.evaluators",
        evaluators,
    ),
    Converted("0.2", ("evaluate.champion",), "the command 'python -m pipelines compare'", champion),
    Renamed("0.2", "evaluate.resamples", "evaluate.bootstrap_resamples"),
    Renamed("0.2", "evaluate.examples", "evaluate.report.queries"),
    Renamed("0.2", "evaluate.compared_images", "evaluate.report.duplicate_check"),
    # 0.3
    Adjusted("0.3", reader_batch),
    Converted(
        "0.3",
        ("train_embedding.checkpoint_every_steps",),
        "train_embedding.checkpoint_every_seconds",
        checkpoint_time,
    ),
    Renamed("0.3", "train_ranking_head.epochs", f"{RANKING_PHASE}.epochs"),
    Converted("0.3", ("train_ranking_head.learning_rates",), f"{RANKING_PHASE}.learning_rate", learning_rates),
    Renamed("0.3", "train_ranking_head.schedule", f"{RANKING_PHASE}.schedule"),
    Adjusted("0.3", late_interaction),
    RemovedArgument("0.3", "RMACEncoder", "onnx_image_size"),
    Added("0.3", "pipeline", "embedding"),
    Added("0.3", "train_embedding.initialization", None),
    Added("0.3", "train_ranking_head.backbone", None),
    Added("0.3", "train_ranking_head.embedding", None),
    Added("0.3", f"{RANKING_PHASE}.frozen_until", {}),
    Added("0.3", f"{RANKING_PHASE}.learning_rate_factors", {}),
    Added("0.3", "train_ranking_head.optimizer", {"name": "Adam"}),
    Added("0.3", "train_ranking_head.precision", "float32"),
    Added("0.3", "train_ranking_head.max_grad_norm", None),
    Added("0.3", "train_ranking_head.micro_batch_size", None),
    Added("0.3", "train_ranking_head.checkpoint_every_seconds", 300.0),
    Added("0.3", "export_ranking_head.tolerance", 0.0001),
    Added("0.3", "register_ranking_head", {"model": "bifocal-ranking", "alias": "candidate"}),
    Added(
        "0.3",
        "embed_collection",
        {
            "source": None, "former": None, "name": "bifocal", "regions": True, "batch_size": 32,
            "items_per_shard": 4096, "max_pixels": 50_000_000, "max_rejected_fraction": 0.1,
        },
    ),
    Added(
        "0.3",
        "build_index",
        {
            "factory": "auto", "memory_mb": 1200, "latency_ms": 20, "recall": 0.95, "queries": 1000,
            "max_query_words": 12,
        },
    ),
)  # fmt: skip
"""Every change since version 0.1. A change of parameters adds its line here, and a file to the test's old versions."""
