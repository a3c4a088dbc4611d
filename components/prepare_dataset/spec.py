"""Stage prepare_dataset: parameters, inputs and outputs."""

from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import Field

from runtime.spec import ClassRef, Component, FromRegistry, Params

CORPUS = FromRegistry("bifocal.datasets.corpora", injected=("seed",), paths=("root", "corrections"))


class PrepareDatasetParams(Params):
    """Section ``prepare_dataset`` of params.yaml."""

    corpus: Annotated[ClassRef, CORPUS] = Field(
        description="reader of bifocal.datasets.corpora with its arguments; root is the folder "
        "of the corpus"
    )
    copy_images: bool = Field(
        description="copy the images into the artifact; if false, refer to the files below "
        "root, which other machines can only read if root is an s3:// address"
    )
    max_pixels: int = Field(
        ge=1, description="width x height; a larger image is rejected before it is decoded"
    )
    max_rejected_fraction: float = Field(
        ge=0,
        le=1,
        description="fraction of images and captions together that may be broken; above it "
        "the stage fails",
    )

    def local_files(self) -> Iterator[str]:
        arguments = self.corpus.arguments
        nested = [
            value["root"]
            for value in arguments.values()
            if isinstance(value, Mapping) and "root" in value
        ]
        roots = [root for root in (arguments.get("root"), *nested) if root is not None]
        local = [root for root in roots if not str(root).startswith("s3://")]
        for root in local if not self.copy_images else ():
            yield (
                f"copy_images is false, so the dataset refers to the images below {root}, "
                "which other machines do not have: set copy_images: true, or name an s3:// "
                "address as root, from which every step reads the images"
            )


COMPONENT = Component(
    name="prepare_dataset",
    summary="Read a corpus, open every image once, and write the tables of images, captions "
    "and phrases.",
    image="cpu",
    params=PrepareDatasetParams,
    outputs=("dataset",),
    large_outputs=("dataset",),
)
