"""Declaration of the stage ``extract_features``."""

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from components.spec import Component, Params, Part, PartOf, SourcePath


class PretrainingParams(BaseModel):
    """Training of the backbone on the phrases and boxes of the dataset's split "train"."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    epochs: int = Field(ge=1, description="passes over the images")
    batch_size: int = Field(ge=1, description="images")
    learning_rate: float = Field(gt=0, description="of AdamW, at its highest")
    weight_decay: float = Field(ge=0, description="of AdamW")
    min_count: int = Field(ge=1, description="phrases, or captions, that have a word, for it to be learnt")
    positive_weight: float = Field(gt=0, description="of a word that is in a cell, beside one that is not")
    scene_weight: float = Field(
        ge=0, description="of the loss on words of the whole image, beside that on the words of its cells"
    )


class ExtractFeaturesParams(Params):
    """Section ``extract_features`` of params.yaml."""

    features: Annotated[Part, PartOf("bifocal.features")] = Field(description="the kind, see bifocal.features")
    weights: SourcePath | None = Field(
        description="safetensors file of the backbone's weights; null for the library's own, which it downloads"
    )
    pretraining: PretrainingParams | None = Field(
        description="train the backbone here, on phrases and boxes, instead of loading weights; null to load them"
    )
    source: SourcePath | None = Field(
        description="file or folder of features that somebody has extracted; null for kinds that look at the images, "
        "and for Precomputed, whose dataset names the folder"
    )
    batch_size: int = Field(ge=1, description="images that the network sees at once")
    shard_size: int = Field(ge=1, description="images in a file of the store, and what a killed run can lose")

    @model_validator(mode="after")
    def _one_origin_of_weights(self) -> Self:
        if self.weights is not None and self.pretraining is not None:
            raise ValueError("weights are loaded or trained here: set weights or pretraining to null")
        return self


COMPONENT = Component(
    name="extract_features",
    summary="Describe every image by the features of its regions, in a store that is mapped into memory.",
    image="gpu",
    params=ExtractFeaturesParams,
    inputs=("dataset",),
    outputs=("features",),
    code=("bifocal/datasets", "bifocal/features"),
    merge="merge_features",
)
