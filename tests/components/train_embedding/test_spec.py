"""Parameters of train_embedding: values that contradict each other are errors before any work."""

from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import yaml

from bifocal import registry
from components.train_embedding.spec import COMPONENT, RANK_LOSS, TrainEmbeddingParams
from runtime import parameters
from runtime.parameters import ParameterError

ROOT = Path(__file__).parents[3]
TRIPLETS = {"batches": "MinedTriplets", "loss": "SemanticTripletLoss"}
GROUNDING = {
    "name": "GroundingModel",
    "dim": 8,
    "image_encoder": "MultiLevelEncoder",
    "text_encoder": "ElmoMixtureEncoder",
}


def validated(phase: dict[str, Any], **changes: Any) -> TrainEmbeddingParams:
    """The values of params.yaml with changes; changes of ``phase`` are in the first phase."""
    values = parameters.load(ROOT / "params.yaml")
    section = parameters.merge(values["train_embedding"], {"phases": {0: phase}} if phase else {})
    params = parameters.validate({"seed": 0, "train_embedding": section | changes}, [COMPONENT])[
        "train_embedding"
    ]
    assert isinstance(params, TrainEmbeddingParams)
    return params


@pytest.mark.parametrize("name", registry.registered("bifocal.losses"))
def test_the_losses_that_take_a_sorter_are_known_without_their_import(name: str) -> None:
    takes = "sorter" in signature(registry.get("bifocal.losses", name)).parameters
    assert bool(RANK_LOSS.search(str([{"name": name}]))) == takes


@pytest.mark.parametrize(
    ("loss", "unused"),
    [
        ("InfoNCELoss", {"sorter"}),
        ({"name": "WeightedSumLoss", "losses": ["InfoNCELoss"]}, {"sorter"}),
        ({"name": "WeightedSumLoss", "losses": ["InfoNCELoss", "RecallLoss"]}, set()),
        ("bifocal.losses:RecallLoss", set()),
    ],
)
def test_a_sorter_is_read_for_a_loss_on_ranks(loss: Any, unused: set[str]) -> None:
    assert validated({"loss": loss}).unused_inputs == unused


@pytest.mark.parametrize(
    ("phase", "changes", "message"),
    [
        (
            {},
            {"optimizer": {"name": "Adan"}},
            "optimizer: torch.optim has no 'Adan'; did you mean 'Adam'",
        ),
        (
            {},
            {"optimizer": {"name": "SGD", "lr": 0.1}},
            "optimizer.lr: leave it out, the stage passes it",
        ),
        (
            {},
            {"optimizer": "Adam", "decay_biases": False},
            "decay_biases is false, and Adam has no weight_decay",
        ),
        ({}, {"ema_decay": 1.0}, "ema_decay: got 1.0"),
        ({}, {"micro_batch_size": 0}, "micro_batch_size: got 0"),
        ({}, {"halve_after": [3]}, "halve_after: unknown key"),
        (
            {"frozen_until": {"text_encoder": -1}},
            {},
            r"phases\.0\.frozen_until\.text_encoder: got -1",
        ),
        ({"loss": "StructurLoss"}, {}, r"phases\.0\.loss: bifocal\.losses has no 'StructurLoss'"),
        (
            {"batches": {"name": "CaptionBatches", "batch_size": 0}},
            {},
            r"phases\.0\.batches: batch_size is 0",
        ),
        ({"batches": {"name": "PhraseBoxes", "max_negatives": 9}}, {}, "no negatives are mined"),
        ({"loss": {"name": "RecallLoss", "ks": [1]}}, {}, "ks is for surrogate 'recall'"),
        (
            {"schedule": {"name": "MultiStep", "gamma": 2.0}},
            {},
            r"phases\.0\.schedule: gamma is 2\.0",
        ),
    ],
)
def test_wrong_values_are_explained(
    phase: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        validated(phase, **changes)


@pytest.mark.parametrize(
    ("phase", "changes", "message"),
    [
        (
            {"batches": "MinedTriplets"},
            {},
            "MinedTriplets needs SemanticTripletLoss, with its margin: set it as loss",
        ),
        (
            {
                "batches": "MinedTriplets",
                "loss": {"name": "WeightedSumLoss", "losses": ["SemanticTripletLoss"]},
            },
            {},
            "MinedTriplets needs SemanticTripletLoss, with its margin: set it as loss",
        ),
        (
            {"loss": "GroundingLoss"},
            {},
            "GroundingLoss needs scores.word_scores and scores.sentence_scores, which "
            "TwoBranchModel lacks",
        ),
        (TRIPLETS, {"model": GROUNDING}, "phases.0: MinedTriplets needs one vector per image"),
        (
            {
                "loss": {
                    "name": "WeightedSumLoss",
                    "losses": ["GroundingLoss", "StructurePreservingLoss"],
                }
            },
            {"model": GROUNDING},
            "set visual_weight and textual_weight to 0",
        ),
        (
            {},
            {"model": {"name": "TwoBranchModel", "dim": 8, "image_encoder": "SMILEEncoder"}},
            "model.text_encoder: missing",
        ),
        (
            {},
            {"initialization": "CCA"},
            "initialization is CCA, and the encoders are .*: set both to LinearEncoder",
        ),
        (
            {},
            {"model": GROUNDING | {"image_encoder": {"name": "MultiLevelEncoder", "dim": 9}}},
            "model: image_encoder.dim: leave it out, it is dim of the model",
        ),
    ],
)
def test_parts_that_contradict_each_other_are_explained(
    phase: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        validated(phase, **changes)


def test_validators_are_checked() -> None:
    assert (
        validated({"validator": {"name": "Recall", "images": 100}}).phases[0].validator is not None
    )
    with pytest.raises(ParameterError, match="images is 1: expected 2 or more"):
        validated({"validator": {"name": "Recall", "images": 1}})
    with pytest.raises(ParameterError, match="has no 'Recalls'; did you mean 'Recall'"):
        validated({"validator": "Recalls"})


def test_phases_of_the_readme_are_valid() -> None:
    readme = (ROOT / "components" / "train_embedding" / "README.md").read_text()
    example = yaml.safe_load(readme.partition("```yaml\n")[2].partition("```")[0])
    values = parameters.merge(parameters.load(ROOT / "params.yaml"), example)
    section = parameters.validate(
        {"seed": 0, "train_embedding": values["train_embedding"]}, [COMPONENT]
    )
    assert len(section["train_embedding"].model_dump()["phases"]) == 2
