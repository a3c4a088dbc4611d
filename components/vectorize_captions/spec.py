"""Stage vectorize_captions: parameters, inputs and outputs."""

from typing import Annotated

from pydantic import Field

from runtime.spec import ClassRef, Component, FromRegistry, Params

VECTORIZER = FromRegistry("bifocal.text.vectorizers", paths=("path",))


class VectorizeCaptionsParams(Params):
    """Section ``vectorize_captions`` of params.yaml."""

    vectorizer: Annotated[ClassRef, VECTORIZER] = Field(
        description="vectorizer of bifocal.text.vectorizers with its arguments; path is a user "
        "file, such as word vectors"
    )


COMPONENT = Component(
    name="vectorize_captions",
    summary="Convert the captions to token ids with word vectors, to sentence vectors or to "
    "bags of words.",
    image="cpu",
    params=VectorizeCaptionsParams,
    inputs=("dataset",),
    outputs=("text",),
    large_outputs=("text",),
)
