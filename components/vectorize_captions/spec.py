"""What vectorize_captions reads, writes and is told."""

from typing import Annotated

from pydantic import Field

from runtime.spec import ClassRef, Component, FromRegistry, Params, UserPath


class VectorizeCaptionsParams(Params):
    """Section ``vectorize_captions`` of params.yaml."""

    vectorizer: Annotated[ClassRef, FromRegistry("bifocal.text.vectorizers", injected=("source",))] = Field(
        description="how a caption becomes numbers, see bifocal/text"
    )
    source: UserPath | None = Field(
        description="file or folder that the vectorizer starts from, such as word vectors; null: the captions alone"
    )


COMPONENT = Component(
    name="vectorize_captions",
    summary="Turn the captions into token ids with word vectors, into sentence vectors or bags of words.",
    image="cpu",
    params=VectorizeCaptionsParams,
    inputs=("dataset",),
    outputs=("text",),
    code_paths=("bifocal/text", "bifocal/datasets"),
)
