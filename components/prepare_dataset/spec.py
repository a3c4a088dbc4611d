"""Declaration of the stage ``prepare_dataset``."""

from typing import Annotated

from pydantic import Field

from runtime.spec import ClassRef, Component, FromRegistry, Params, UserPath

# Pillow warns above this many pixels, and refuses twice as many whatever is said here.
PILLOW_LIMIT = 89_478_485


class PrepareDatasetParams(Params):
    """Section ``prepare_dataset`` of params.yaml."""

    source: Annotated[ClassRef, FromRegistry("bifocal.datasets.corpora", injected=("root", "seed"))] = Field(
        description="the corpus and its own options, see bifocal/datasets"
    )
    root: UserPath | None = Field(description="folder of the corpus's files; null for Scenes, which reads none")
    copy_images: bool = Field(
        description="copy the images into the artifact, so that it travels; else refer to them where they are"
    )
    max_pixels: int = Field(
        ge=1, le=PILLOW_LIMIT, description="width x height; a larger image is refused before it is decoded"
    )
    max_rejected_fraction: float = Field(
        ge=0, le=1, description="of images and captions together that may be broken before the stage fails"
    )


COMPONENT = Component(
    name="prepare_dataset",
    summary="Read a corpus, open every image once, and write the tables of images, captions and phrases.",
    image="cpu",
    params=PrepareDatasetParams,
    outputs=("dataset",),
    code_paths=("bifocal/datasets",),
)
