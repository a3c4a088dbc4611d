"""Contradictions between references: each rule stands with the class of a part."""

import pytest

from bifocal.training.compatibility import model_conflicts, phase_conflicts

TWO_BRANCH = {
    "name": "TwoBranchModel",
    "image_encoder": "SMILEEncoder",
    "text_encoder": "GRUEncoder",
}
GROUNDING = {
    "name": "GroundingModel",
    "image_encoder": "MultiLevelEncoder",
    "text_encoder": "ElmoMixtureEncoder",
}


@pytest.mark.parametrize(
    ("model", "batches", "loss", "problems"),
    [
        (TWO_BRANCH, "CaptionBatches", "InfoNCELoss", []),
        (TWO_BRANCH, "MinedTriplets", "SemanticTripletLoss", []),
        (
            TWO_BRANCH,
            "OrderedTriplets",
            "InfoNCELoss",
            ["OrderedTriplets needs SemanticTripletLoss"],
        ),
        (
            TWO_BRANCH,
            "CaptionBatches",
            "SemanticTripletLoss",
            ["needs MinedTriplets or OrderedTriplets"],
        ),
        (GROUNDING, "CaptionBatches", "GroundingLoss", []),
        (
            GROUNDING,
            "CaptionBatches",
            {"name": "StructurePreservingLoss", "textual_weight": 0.0},
            [],
        ),
        (GROUNDING, "CaptionBatches", "StructurePreservingLoss", ["needs scores.textual"]),
        (GROUNDING, "PhraseBoxes", "InfoNCELoss", ["PhraseBoxes needs one vector per image"]),
    ],
)
def test_batches_and_loss_of_a_phase(
    model: object, batches: str, loss: object, problems: list[str]
) -> None:
    found = list(phase_conflicts(model, batches, loss))
    assert len(found) == len(problems)
    assert all(problem in text for problem, text in zip(problems, found, strict=True))


def test_initialization_needs_its_encoders() -> None:
    heads = {
        "name": "TwoBranchModel",
        "image_encoder": "ResidualHead",
        "text_encoder": {"name": "ResidualHead"},
    }
    assert list(model_conflicts(heads, {"initialization": "ZeroShot"}, members=1)) == []
    (problem,) = model_conflicts(TWO_BRANCH, {"closed_form": "ZeroShot"}, members=1)
    assert (
        "closed_form is ZeroShot, and the encoders are SMILEEncoder and GRUEncoder: set both "
        "to ResidualHead" in problem
    )
    assert list(model_conflicts(TWO_BRANCH, {}, members=3)) == []


def test_only_models_with_one_vector_have_members() -> None:
    (problem,) = model_conflicts(GROUNDING, {}, members=2)
    assert "GroundingModel has no single vector to concatenate" in problem
