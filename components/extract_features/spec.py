"""Declaration of the stage ``extract_features``."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from runtime.spec import ClassRef, Component, FromRegistry, Params, StrictModel, UserPath


class PretrainingParams(StrictModel):
    """Training of the backbone on the phrases and boxes of the dataset's split "train"."""

    epochs: int = Field(ge=1, description="passes over the images")
    batch_size: int = Field(ge=1, description="images")
    learning_rate: float = Field(gt=0, description="of AdamW, at its highest")
    weight_decay: float = Field(ge=0, description="of AdamW")
    min_count: int = Field(ge=1, description="phrases, or captions, that have a word, for it to be learnt")
    positive_weight: float = Field(gt=0, description="of a word that is in a cell, beside one that is not")
    scene_weight: float = Field(
        ge=0, description="of the loss on words of the whole image, beside that on the words of its cells"
    )


class ClassifierParams(StrictModel):
    """Training of the backbone of Pixels, and of BEAN's adaptation layer on it, as a classifier."""

    task: str | None = Field(
        description="of the dataset's labels; null for the class folders train/ and val/ below source (ImageNet)"
    )
    maps: int = Field(ge=1, description="D', of the adaptation; as that of the encoder")
    epochs: int = Field(ge=1, description="passes over the images")
    batch_size: int = Field(ge=1, description="images")
    learning_rate: float = Field(gt=0, description="of AdamW, at its highest")
    weight_decay: float = Field(ge=0, description="of AdamW")
    train_backbone: bool = Field(description="train the backbone too, or the adaptation alone")
    random_start: bool = Field(description="start from random weights, instead of those of the backbone")


class ExtractFeaturesParams(Params):
    """Section ``extract_features`` of params.yaml."""

    features: Annotated[ClassRef, FromRegistry("bifocal.features.extractors")] = Field(
        description="the kind, see bifocal.features"
    )
    weights: UserPath | None = Field(
        description="safetensors file of the backbone's weights; null for the library's own, which it downloads"
    )
    pretraining: PretrainingParams | None = Field(
        description="train the backbone here, on phrases and boxes, instead of loading weights; null to load them"
    )
    classifier: ClassifierParams | None = Field(
        description="train the backbone of Pixels and BEAN's adaptation as a classifier; null to train nothing"
    )
    source: UserPath | None = Field(
        description="file or folder of features that somebody has extracted, or of class folders for the classifier; "
        "null for other kinds that look at the images, and for PrecomputedFeatures, whose dataset names the folder"
    )
    batch_size: int = Field(ge=1, description="images that the network sees at once")
    shard_size: int = Field(ge=1, description="images in a file of the store, and what a killed run can lose")

    @model_validator(mode="after")
    def _one_origin_of_weights(self) -> Self:
        if self.weights is not None and self.pretraining is not None:
            raise ValueError("weights are loaded or trained here: set weights or pretraining to null")
        if self.classifier is not None and self.pretraining is not None:
            raise ValueError("pretraining is for Grid, classifier for Pixels: set one of them to null")
        return self

    @property
    def shardable(self) -> bool:
        """Not where something is learnt first: every shard would learn its own."""
        whitens = self.features.name == "RMAC" and self.weights is None
        return self.pretraining is None and self.classifier is None and not whitens


COMPONENT = Component(
    name="extract_features",
    summary="Describe every image by the features of its regions, in a store that is mapped into memory.",
    image="gpu",
    params=ExtractFeaturesParams,
    inputs=("dataset",),
    outputs=("features",),
    code_paths=("bifocal/datasets", "bifocal/features", "bifocal/image_encoders"),
    merge_step="merge",
)
