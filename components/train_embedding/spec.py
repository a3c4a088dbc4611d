"""Stage train_embedding: parameters, inputs and outputs."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from runtime.spec import ClassRef, Component, FromRegistry, Params, Plot, StrictModel

MONITORS = {"Recall": "recall_sum", "Phrases": "phrase_R@1", "Pointing": "pointing", "Semantic": "ndcg"}
"""Metric that chooses the epoch, by the validator; the parts themselves cannot be imported here, they need torch."""
VALIDATORS = {"MinedTriplets": "Semantic", "OrderedTriplets": "Semantic", "PhraseBoxes": "Phrases"}
"""Validator of a phase that names none, by the batches; ``Recall`` for the others."""

IMAGE_TRIPLETS = ("MinedTriplets", "OrderedTriplets")
"""Batches of image triplets."""


CLOSED_FORM = ("CCA", "PhraseCCA", "ClassNames")
"""Initializations that fit both encoders in closed form."""


class PhaseParams(StrictModel):
    """Batches, loss and learning rate of some epochs."""

    batches: Annotated[ClassRef, FromRegistry("bifocal.training.batches")] = Field(
        description="the examples that share a batch"
    )
    loss: Annotated[ClassRef, FromRegistry("bifocal.losses", injected=("sorter",))] = Field(
        description="loss of a batch; a loss with a sorter gets the pretrained one"
    )
    epochs: int = Field(ge=1, description="epochs of this phase")
    learning_rate: float = Field(gt=0, description="base learning rate, which the schedule multiplies")
    schedule: Annotated[ClassRef, FromRegistry("bifocal.training.schedules")] = Field(
        description="factor of the learning rate; epochs count from the start of the phase"
    )
    frozen_until: dict[str, Annotated[int, Field(ge=0)] | None] = Field(
        description="epochs of this phase during which a module is frozen, null for all: {text_encoder: 5, "
        "word_embedding: null}; the most specific name wins: {image_encoder: 8, image_encoder.projection: 0}"
    )
    learning_rate_factors: dict[str, Annotated[float, Field(gt=0)]] = Field(
        default={},
        description="factors of the learning rates of modules: {text_encoder.tower: 0.05}; the most specific name wins",
    )
    augmentations: list[Annotated[ClassRef, FromRegistry("bifocal.training.augmentations")]] = Field(
        default=[],
        description="random changes of each batch: [{name: RegionDrop, probability: 0.2}, WordDrop]",
    )
    validator: Annotated[ClassRef, FromRegistry("bifocal.training.validators")] | None = Field(
        default=None,
        description="metric on the split val that chooses the epoch; null: Semantic for MinedTriplets, Phrases for "
        "PhraseBoxes, Recall for other batches",
    )

    @model_validator(mode="after")
    def _check_batches_and_loss(self) -> Self:
        losses = {name for name, _ in _nested_refs(self.loss)}
        if (self.batches.name in IMAGE_TRIPLETS) != ("SemanticTripletLoss" in losses):
            raise ValueError(
                f"batches is {self.batches.name} and loss is {self.loss.name}: {' or '.join(IMAGE_TRIPLETS)} and "
                "SemanticTripletLoss need each other, set both or none"
            )
        if "SemanticTripletLoss" in losses and self.loss.name != "SemanticTripletLoss":
            raise ValueError(
                f"SemanticTripletLoss is inside {self.loss.name}, but {self.batches.name} needs its margin: set it as "
                "loss"
            )
        return self

    @property
    def monitor(self) -> str:
        """Metric that chooses the epoch."""
        default = VALIDATORS.get(self.batches.name, "Recall")
        return MONITORS[default if self.validator is None else self.validator.name]


class TrainEmbeddingParams(Params):
    """Section ``train_embedding`` of ``params.yaml``."""

    model: Annotated[
        ClassRef, FromRegistry("bifocal.models", injected=("input_dim", "text_format", "vocabulary_size", "network"))
    ] = Field(description="model with its image encoder, its text encoder and dim, the dimension of the joint space")
    initialization: Annotated[ClassRef, FromRegistry("bifocal.training.initialization", paths=("path",))] | None = (
        Field(
            description="weights that the training starts from, and keeps unless it improves on them; null for random "
            "weights"
        )
    )
    phases: list[PhaseParams] = Field(
        description="trainings in order, each from the best weights of the one before; a phase that does not improve "
        "its metric is undone; empty to keep the weights of the initialization",
    )
    members: int = Field(
        default=1,
        ge=1,
        description="trainings with different seeds whose vectors are concatenated: one model of higher dimension",
    )
    hubness: Annotated[ClassRef, FromRegistry("bifocal.hubness")] | None = Field(
        default=ClassRef(name="CSLS"),
        description="correction of search results by a bank of training captions and images, which is stored with the "
        "model; null for none",
    )
    optimizer: Annotated[ClassRef, FromRegistry("torch.optim", injected=("params", "lr"))] = Field(
        description="class of torch.optim; its learning rate is that of the phase"
    )
    decay_biases: bool = Field(
        default=True,
        description="apply the optimizer's weight decay to biases and norms, too; false: to matrices alone",
    )
    precision: Literal["float32", "bfloat16"] = Field(description="precision of the matrix products in training")
    max_grad_norm: float | None = Field(
        gt=0, description="l2 norm to which gradients are clipped; null for no clipping"
    )
    ema_decay: float = Field(
        ge=0,
        lt=1,
        description="decay of the exponential moving average of the weights, which is validated and kept; 0 for none",
    )
    micro_batch_size: int | None = Field(
        ge=1,
        description="images, and captions, encoded at a time to save memory; the loss still compares the whole batch; "
        "null for the whole batch",
    )
    gradient_checkpointing: bool = Field(
        description="recompute the activations of a trained backbone instead of keeping them: less memory, more time"
    )
    checkpoint_every_seconds: float = Field(
        ge=0,
        description="least time between two checkpoints inside an epoch, in s: work that a killed run can lose; 0 for "
        "one after every step",
    )

    @model_validator(mode="after")
    def _check_model(self) -> Self:
        if not self.phases and self.initialization is None:
            raise ValueError("phases is empty and initialization is null, so nothing is learned: set one of them")
        for encoder in ("image_encoder", "text_encoder"):
            if encoder not in self.model.arguments:
                raise ValueError(f"model: {self.model.name} has no {encoder}: add {encoder}: {{name: ...}}")
            if "dim" in dict(next(_nested_refs(self.model.arguments[encoder]), ("", {}))[1]):
                raise ValueError(f"model.{encoder}.dim: leave it out, it is model.dim")
        if self.members > 1 and self.model.name == "GroundingModel":
            raise ValueError("members: a GroundingModel has no single vector to concatenate: leave it out")
        if self.initialization is not None and self.initialization.name in CLOSED_FORM:
            encoders = [next(_nested_refs(self.model.arguments[name]))[0] for name in ("image_encoder", "text_encoder")]
            if set(encoders) != {"LinearEncoder"}:
                raise ValueError(
                    f"initialization is {self.initialization.name}, which fits affine maps, and the encoders are "
                    f"{' and '.join(encoders)}: set both to LinearEncoder"
                )
        if not self.decay_biases and not _weight_decay(self.optimizer):
            raise ValueError(f"decay_biases is false, and {self.optimizer.name} has no weight_decay: leave it out")
        problems = [
            f"phases.{index}: {problem}"
            for index, phase in enumerate(self.phases)
            for problem in _model_problems(self.model.name, phase)
        ]
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def monitor(self) -> str:
        """Metric that chooses the epoch of the last phase."""
        return self.phases[-1].monitor if self.phases else MONITORS["Recall"]

    @property
    def fit_options(self) -> dict[str, Any]:
        """Arguments of ``fit`` that all phases share."""
        others = {"seed", "model", "initialization", "phases", "members", "hubness", "gradient_checkpointing"}
        return {name: getattr(self, name) for name in type(self).model_fields if name not in others}


def _weight_decay(optimizer: ClassRef) -> float:
    from bifocal.registry import all_arguments

    return float(all_arguments("torch.optim", optimizer).get("weight_decay", 0.0))


def _model_problems(model: str, phase: PhaseParams) -> Iterator[str]:
    """Explain batches and losses that the model cannot train with."""
    losses = dict(_nested_refs(phase.loss))
    if model != "GroundingModel":
        if "GroundingLoss" in losses:
            yield f"GroundingLoss needs scores of words and sentences, which {model} lacks: set model to GroundingModel"
        return
    if phase.batches.name in (*IMAGE_TRIPLETS, "PhraseBoxes"):
        yield f"{phase.batches.name} needs one vector per image, but a GroundingModel has several: use TwoBranchModel"
    structure = losses.get("StructurePreservingLoss")
    if structure is not None and (structure.get("visual_weight", 0.0) or structure.get("textual_weight", 0.2)):
        yield (
            "StructurePreservingLoss needs scores within a view, which a GroundingModel lacks: set visual_weight and "
            "textual_weight to 0, or use TwoBranchModel"
        )


def _nested_refs(ref: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the name and the arguments of a reference and of the references among its arguments."""
    if isinstance(ref, ClassRef):
        ref = {"name": ref.name, **ref.arguments}
    if isinstance(ref, str):
        yield ref, {}
    elif isinstance(ref, Mapping) and isinstance(ref.get("name"), str):
        yield ref["name"], {key: value for key, value in ref.items() if key != "name"}
        for value in ref.values():
            for entry in value if isinstance(value, list) else ():
                yield from _nested_refs(entry)


COMPONENT = Component(
    name="train_embedding",
    summary="Train an image encoder and a text encoder into a joint space; keep the best epoch.",
    image="gpu",
    data_parallel=True,
    params=TrainEmbeddingParams,
    inputs=("dataset", "features", "text", "sorter"),
    outputs=("embedding",),
    plots=(
        Plot("embedding/history.csv", x="epoch", y="loss", title="Training loss"),
        Plot(
            "embedding/history.csv", x="epoch", y=lambda params: params.monitor, title="Metric that chooses the epoch"
        ),
    ),
)
