"""Predictions of the stages of a sorter and of a ranking head."""

from typing import Any

from bifocal.planning.ranking import RankingInputs, simulate_predictions, simulate_ranking_step
from bifocal.planning.simulation import Work
from components.train_ranking_head.spec import TrainRankingHeadParams
from pipelines.plan.devices import DISK_BYTES_PER_SECOND, Device
from pipelines.plan.plan import StagePlan, gpu_peak
from pipelines.plan.stages import CUDA_LIBRARIES, PROCESS, Sizes, freezing_spans

CHECK_SECONDS = 60.0
"""Duration of the comparison of the exported graph with torch, and of a registration."""


def pretrain_sorter(training: Any, length: int, device: Device) -> StagePlan:
    """Predict the training of a sorter; an LSTM of the published size needs less than 2 GB."""
    if training is None:
        return StagePlan("pretrain_sorter", {"sorter": 1_000}, PROCESS)
    steps = training.epochs * -(-training.vectors_per_epoch // training.batch_size)
    weights = 530_000  # a bidirectional LSTM of 2 layers of 128
    flops = 6.0 * weights * length * training.batch_size * steps
    host = PROCESS + (CUDA_LIBRARIES if device.gpu_bytes else 0)
    activations = 4 * training.batch_size * length * 128 * 2 * 2 * 12
    gpu = gpu_peak(activations) if device.gpu_bytes else 0
    host += 0 if device.gpu_bytes else activations
    size = {"sorter": 12 * weights}
    return StagePlan(
        "pretrain_sorter", size, host, gpu, steps, device.seconds(Work(flops, calls=12.0 * length * steps), "float32")
    )


def train_ranking_head(params: TrainRankingHeadParams, inputs: RankingInputs, sizes: Sizes) -> StagePlan:
    """Predict the training with the loss and, after it, with the surrogate."""
    features, images = inputs.features, sizes.corpus.images
    predictions = simulate_predictions(inputs, max(images.get("val", 0), images.get("test", 0)))
    batch = features.batch_bytes(params.batch_size)
    steps_of_epoch = -(-images.get("train", 0) // params.batch_size)
    peak, state, steps, seconds = predictions.peak, 0, 0, 0.0
    for loss in filter(None, (params.loss, params.surrogate)):
        for phase in params.phases:
            for first, last in freezing_spans(phase.epochs, phase.frozen_until):
                step = simulate_ranking_step(
                    inputs,
                    metric=params.metric,
                    batch_size=params.batch_size,
                    loss=loss,
                    sorter=params.sorter,
                    optimizer=params.optimizer,
                    frozen_until=phase.frozen_until,
                    epoch=first,
                    precision=params.precision,
                    micro_batch_size=params.micro_batch_size,
                )
                peak, state = max(peak, step.peak), max(state, step.state)
                computing = sizes.device.seconds(step.work, params.precision)
                seconds += (last - first) * steps_of_epoch * max(computing, _reading(params.batch_size, inputs, sizes))
            steps += phase.epochs * steps_of_epoch
            seconds += phase.epochs * _predicting(images.get("val", 0), inputs, sizes)
        seconds += _predicting(images.get("test", 0), inputs, sizes)
    former = predictions.weights  # the weights that an unsuccessful phase goes back to
    # A checkpoint is serialized in host memory; from a GPU, its tensors and new weights are there too.
    checkpoint = 2 * (predictions.weights + state) if sizes.device.gpu_bytes else state
    host, gpu = sizes.on_device(sizes.tables + sizes.stores + 3 * batch + checkpoint, peak + former)
    size = {"ranking_head": predictions.weights}
    return StagePlan("train_ranking_head", size, host, gpu, steps, seconds)


def export_ranking_head(weights: int) -> StagePlan:
    """Predict the graph: weights in float32; the exporter holds them up to four times."""
    return StagePlan("export_ranking_head", {"ranking_onnx": weights}, PROCESS + 4 * weights, seconds=CHECK_SECONDS)


def register_ranking_head(weights: int) -> StagePlan:
    """Predict the registration: MLflow copies the graph to its store."""
    return StagePlan(
        "register_ranking_head", {"ranking_registration": weights}, PROCESS + weights, seconds=CHECK_SECONDS
    )


def _reading(images: int, inputs: RankingInputs, sizes: Sizes) -> float:
    if inputs.features.decodes:
        return sizes.decoding(images)
    return inputs.features.batch_bytes(images) / DISK_BYTES_PER_SECOND


def _predicting(images: int, inputs: RankingInputs, sizes: Sizes) -> float:
    work = simulate_predictions(inputs).image.times(images)
    return max(sizes.device.seconds(work, "float32"), _reading(images, inputs, sizes))
