"""What train_embedding reads, writes and is told."""

from typing import Annotated, Literal

from pydantic import Field

from components.spec import Component, Params, Part, PartOf, Plot


class TrainEmbeddingParams(Params):
    """Section ``train_embedding`` of params.yaml."""

    dim: int = Field(ge=1, description="d, of the embedding space")
    image_encoder: Annotated[Part, PartOf("bifocal.image_encoders", filled=("input_dim", "dim"))] = Field(
        description="see bifocal/image_encoders"
    )
    text_encoder: Annotated[Part, PartOf("bifocal.text_encoders", filled=("input_dim", "dim"))] = Field(
        description="see bifocal/text_encoders"
    )
    fine_tune_words: bool = Field(description="train the word vectors too")
    loss: Annotated[Part, PartOf("bifocal.losses", filled=("sorter",))] = Field(
        description="see bifocal/losses; one that takes a sorter gets the pretrained one"
    )
    epochs: int = Field(ge=1, description="passes over all captions")
    batch_size: int = Field(ge=2, description="captions; their images come once each")
    captions_per_image: int = Field(ge=1, description="most captions of an image that share a batch")
    precision: Literal["float32", "bfloat16"] = Field(description="of the matrix products in training")
    learning_rate: float = Field(gt=0, description="of Adam")
    halve_after: list[int] = Field(description="epochs after each of which the learning rate is halved")
    clip_norm: float = Field(gt=0, description="the gradient's l2 norm is cut to this")
    train_from: dict[str, int] = Field(
        description="first epoch, from 0, of a part: {text_encoder: 5} keeps it frozen for the first 5"
    )
    checkpoint_every: int = Field(ge=1, description="steps; what a killed run can lose")


COMPONENT = Component(
    name="train_embedding",
    summary="Train an image encoder and a text encoder into one space; keep the best epoch.",
    image="gpu",
    params=TrainEmbeddingParams,
    inputs=("dataset", "features", "text", "sorter"),
    outputs=("embedding",),
    code=("bifocal",),
    plots=(
        Plot("embedding/history.csv", x="epoch", y="loss", title="Training loss"),
        Plot("embedding/history.csv", x="epoch", y="recall_sum", title="Validation recall sum, percent"),
    ),
)
