"""What train_embedding reads, writes and is told."""

from typing import Annotated, Literal

from pydantic import Field

from runtime.spec import ClassRef, Component, FromRegistry, Params, Plot, StrictModel


class MiningParams(StrictModel):
    """Triplets of images mined with the model as it is, instead of captions in random order."""

    neighbours: int = Field(ge=1, description="images of the nearest texts, which are relevant to an image")
    queries: int = Field(ge=1, description="images of a pool that are asked with")
    relevant_each: int = Field(ge=1, description="relevant images in the pool for each of them, at least")
    hardest: int = Field(ge=1, description="triplets of each query and relevant image, of the greatest loss")
    updates: int = Field(ge=1, description="steps between two minings; an epoch is so long")


class FineTuningParams(StrictModel):
    """Epochs that follow, on boxes that the model as it is takes for a phrase's own."""

    epochs: int = Field(ge=1, description="passes over all pairs; the boxes are mined anew when each begins")
    loss: Annotated[ClassRef, FromRegistry("bifocal.losses", injected=("sorter",))] = Field(
        description="without structure within the views, which the boxes would outnumber"
    )
    learning_rate: float = Field(gt=0, description="throughout")
    hard_boxes: int = Field(ge=1, description="of each phrase that are recorded")
    drawn: int = Field(ge=1, description="of these, that join a batch for each of its phrases")


class PhrasesParams(StrictModel):
    """Pairs of a phrase and one of its boxes, instead of captions and images."""

    boxes_each: int = Field(ge=1, description="boxes of a phrase that are drawn in an epoch, at most")
    fine_tuning: FineTuningParams | None = Field(description="a second training on hard negatives; null for none")


class TrainEmbeddingParams(Params):
    """Section ``train_embedding`` of params.yaml."""

    dim: int = Field(ge=1, description="d, of the embedding space")
    model: Annotated[
        ClassRef,
        FromRegistry(
            "bifocal.models",
            injected=("image_encoder", "text_encoder", "dim", "text_format", "vocabulary_size"),
        ),
    ] = Field(
        description="see bifocal/models: TwoBranchModel compares one vector of each, GroundingModel words and cells"
    )
    image_encoder: Annotated[ClassRef, FromRegistry("bifocal.image_encoders", injected=("input_dim", "dim"))] = Field(
        description="see bifocal/image_encoders"
    )
    text_encoder: Annotated[ClassRef, FromRegistry("bifocal.text_encoders", injected=("input_dim", "dim"))] = Field(
        description="see bifocal/text_encoders"
    )
    fine_tune_words: bool = Field(description="train the word vectors too")
    loss: Annotated[ClassRef, FromRegistry("bifocal.losses", injected=("sorter",))] = Field(
        description="see bifocal/losses; one that takes a sorter gets the pretrained one"
    )
    epochs: int = Field(ge=1, description="passes over all captions")
    batch_size: int = Field(ge=2, description="captions; their images come once each")
    captions_per_image: int = Field(ge=1, description="captions of an image that are kept together in a batch")
    added_captions: int = Field(
        ge=0,
        description="captions that join a drawn batch for each of its images, beside those it has; a loss on the "
        "structure within captions needs 1",
    )
    distinct_images: bool = Field(
        description="instead, batches of exactly batch_size captions of as many different images: what a loss with a "
        "sorter that was trained at one length needs; the last, incomplete batch of an epoch is left out"
    )
    mining: MiningParams | None = Field(
        description="instead, batches of batch_size mined triplets, for SemanticTripletLoss; null for none"
    )
    phrases: PhrasesParams | None = Field(
        description="instead, batches of batch_size pairs of a phrase and a box, of features that have one vector for "
        "each box, such as Proposals; null for none"
    )
    precision: Literal["float32", "bfloat16"] = Field(description="of the matrix products in training")
    micro_batch: int | None = Field(
        ge=1,
        description="images, and captions, encoded at once where memory is short; the loss still sees the whole batch; "
        "null: all",
    )
    gradient_checkpointing: bool = Field(
        description="compute a backbone's activations a second time instead of keeping them: less memory, more time"
    )
    optimizer: Annotated[ClassRef, FromRegistry("torch.optim", injected=("params", "lr"))] = Field(
        description="of torch.optim: {name: SGD, momentum: 0.9, weight_decay: 0.0005}"
    )
    learning_rate: float = Field(gt=0, description="at the start")
    decay_after: list[Annotated[float, Field(gt=0)]] = Field(
        description="epochs after each of which the learning rate is multiplied by decay_factor; 1.5 is the middle of "
        "the second"
    )
    decay_factor: float = Field(gt=0, le=1, description="0.5 halves the learning rate")
    clip_norm: float = Field(gt=0, description="the gradient's l2 norm is cut to this")
    average: float = Field(
        ge=0, lt=1, description="decay of the exponential moving average of the weights, which is kept; 0: none"
    )
    train_from: dict[str, Annotated[int, Field(ge=0)] | None] = Field(
        description="first epoch, from 0, of a part: {text_encoder: 5} keeps it frozen for the first 5, null for all; "
        "{image_encoder: 8, image_encoder.projection: 0}: the part of a part goes first"
    )
    checkpoint_every: int = Field(ge=1, description="steps; what a killed run can lose")


COMPONENT = Component(
    name="train_embedding",
    summary="Train an image encoder and a text encoder into one space; keep the best epoch.",
    image="gpu",
    params=TrainEmbeddingParams,
    inputs=("dataset", "features", "text", "sorter"),
    outputs=("embedding",),
    code_paths=("bifocal",),
    plots=(
        Plot("embedding/history.csv", x="epoch", y="loss", title="Training loss"),
        Plot("embedding/history.csv", x="epoch", y="validation", title="Validation figure that chooses the epoch"),
    ),
)
