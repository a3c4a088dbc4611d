"""Stage extract_features: parameters, inputs and outputs."""

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field

from runtime.spec import ClassRef, Component, FromRegistry, Params

EXTRACTORS, WEIGHTS = "bifocal.features.extractors", "bifocal.training.weights"


class ExtractFeaturesParams(Params):
    """Section ``extract_features`` of params.yaml."""

    extractor: Annotated[ClassRef, FromRegistry(EXTRACTORS, paths=("path",))] = Field(
        description="how features are computed, or which published files they are read from"
    )
    weights: Annotated[ClassRef, FromRegistry(WEIGHTS, paths=("path",))] | None = Field(
        description="where the weights of the extractor's network come from; null for "
        "published files"
    )
    batch_size: int | None = Field(
        ge=1, description="images per forward pass, at most 4 on a CPU; null for published files"
    )
    images_per_file: int = Field(
        ge=1,
        description="images in a file of the store; a killed run loses at most the file in "
        "progress",
    )

    @property
    def shardable(self) -> bool:
        """False if something is trained or learned first: every shard would learn its own."""
        if self.weights is None:
            return True
        # By name, because a graph compiles without torch, which the classes import.
        return self.weights.name in ("Pretrained", "FromFile")

    def conflicts(self) -> Iterator[str]:
        from bifocal.features.base import FeatureReader
        from bifocal.registry import all_arguments, get, registered

        extractor = get(EXTRACTORS, self.extractor.name)
        if issubclass(extractor, FeatureReader):
            if self.weights is not None:
                yield (
                    f"weights is {self.weights.name}, but {self.extractor.name} reads "
                    "published files: set it to null"
                )
            if self.batch_size is not None:
                yield (
                    f"batch_size is {self.batch_size}, but {self.extractor.name} runs no "
                    "network: set it to null"
                )
            return
        if self.batch_size is None:
            yield (
                f"batch_size is null, but {self.extractor.name} runs a network: give the "
                "images per forward pass"
            )
        if self.weights is None:
            available = ", ".join(registered(WEIGHTS))
            yield (
                f"weights is null, but {self.extractor.name} needs weights: name one of {available}"
            )
        else:
            weights: Any = get(WEIGHTS, self.weights.name)
            reason = weights.mismatch(extractor, all_arguments(EXTRACTORS, self.extractor))
            if reason is not None:
                yield reason


COMPONENT = Component(
    name="extract_features",
    summary="Compute the features of every image's regions and write them to a memory-mapped "
    "store.",
    image="gpu",
    params=ExtractFeaturesParams,
    inputs=("dataset",),
    outputs=("features",),
    large_outputs=("features",),
    merge_step="merge",
)
