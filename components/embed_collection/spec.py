"""Stage embed_collection: parameters, inputs and outputs."""

from collections.abc import Iterator

from pydantic import Field

from runtime.spec import Component, Params, UserPath


class EmbedCollectionParams(Params):
    """Section ``embed_collection`` of params.yaml."""

    source: UserPath | None = Field(
        description="folder of images, of tar shards (WebDataset) or of a zip file, or a table "
        "with a column of images; null for the images of the dataset"
    )
    previous: UserPath | None = Field(
        description="an earlier collection: the vectors of its unchanged images are taken over, or "
        "computed from its features for another model with its backbone, and its other images "
        "become tombstones; it may be the collection that this run replaces"
    )
    prune: bool = Field(
        description="remove many images that are gone from the source together; if false, they stay"
    )
    name: str = Field(min_length=1, description="name of the model in collection.json")
    regions: bool = Field(
        description="write the vectors and boxes of regions too, if the model localizes; they "
        "are many times larger"
    )
    feature_bytes: int = Field(
        ge=0,
        description="limit of the features of a frozen backbone that the collection stores, in "
        "bytes per image; another model with this backbone then needs no image; 0 for none",
    )
    batch_size: int = Field(ge=1, description="images per forward pass")
    items_per_shard: int = Field(
        ge=1, description="vectors in a file; a killed run loses at most one file"
    )
    max_pixels: int = Field(
        ge=1, description="width x height; a larger image is rejected before it is decoded"
    )
    max_rejected_fraction: float = Field(
        ge=0,
        le=1,
        description="fraction of images and rows of a table that may be rejected; above it "
        "the stage fails",
    )

    def local_files(self) -> Iterator[str]:
        if self.source is not None and not str(self.source).startswith("s3:"):
            yield (
                f"the collection would refer to the images at {self.source}, which other "
                "machines do not have: name an s3:// address as source"
            )


COMPONENT = Component(
    name="embed_collection",
    summary="Embed a collection of images with the exported model: ids, metadata, vectors, "
    "and regions with boxes.",
    image="cpu",
    params=EmbedCollectionParams,
    inputs=("dataset", "features", "onnx"),
    outputs=("collection",),
    listed_paths=("source",),
    merge_step="merge_collection",
)
