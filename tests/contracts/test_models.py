"""Promises of every registered model: a batch of N images and M captions -> Scores with cross (N,
M)."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bifocal import registry
from bifocal.features import RegionBatch
from bifocal.models import build_model, load_model, save_model
from bifocal.models.base import Model
from bifocal.models.batch import Batch, dual_encoder, is_dual_encoder
from bifocal.text import TextBatch

MODELS = registry.registered("bifocal.models")
REFS: dict[str, dict[str, Any]] = {
    "GroundingModel": {
        "image_encoder": {"name": "MultiLevelEncoder", "levels": 2},
        "text_encoder": "ElmoMixtureEncoder",
    },
    "TwoBranchModel": {"image_encoder": "SMILEEncoder", "text_encoder": {"name": "GRUEncoder"}},
}
FORMATS: dict[str, dict[str, Any]] = {
    "GroundingModel": {"text_format": "contextual"},
    "TwoBranchModel": {"text_format": "tokens", "vocabulary_size": 11},
}
FEATURE_DIM, TEXT_DIM, DIM, IMAGES, CAPTIONS = 5, 6, 4, 3, 4


def new_model(name: str, seed: int = 0, **changes: Any) -> Model:
    torch.manual_seed(seed)
    ref = {"name": name, "dim": DIM, **REFS[name], **changes}
    return build_model(ref, feature_dim=FEATURE_DIM, text_dim=TEXT_DIM, **FORMATS[name]).eval()


def new_text(model: Model, padding: int = 0) -> TextBatch:
    generator, lengths = torch.Generator().manual_seed(1), torch.tensor([5, 2, 1, 4])
    if model.word_embedding is not None:
        ids = torch.randint(1, 11, (CAPTIONS, 5), generator=generator)
        return TextBatch(torch.nn.functional.pad(ids, (0, padding)), lengths)
    values = torch.randn(CAPTIONS, 3, 5, TEXT_DIM, generator=generator)
    return TextBatch(torch.nn.functional.pad(values, (0, 0, 0, padding)), lengths)


def new_batch(model: Model, padding: int = 0) -> Batch:
    features = torch.randn(IMAGES, 8, FEATURE_DIM, generator=torch.Generator().manual_seed(2))
    regions = RegionBatch(
        features, torch.ones(IMAGES, 8, dtype=torch.bool), torch.zeros(IMAGES, 8, 4)
    )
    matches = torch.eye(IMAGES, CAPTIONS, dtype=torch.bool)
    return Batch(["a", "b", "c"], regions, new_text(model, padding), matches)


def rows_of(encodings: Tensor | tuple[Tensor, ...], order: Tensor) -> Any:
    return (
        encodings[order]
        if isinstance(encodings, Tensor)
        else tuple(part[order] for part in encodings)
    )


@pytest.mark.parametrize("name", sorted(MODELS))
class TestEveryModel:
    def test_names_the_packages_of_its_encoders(self, name: str) -> None:
        assert MODELS[name].parts.keys() == REFS[name].keys()

    def test_builds_both_encoders_with_its_dimensions(self, name: str) -> None:
        model = new_model(name)
        assert (model.image_encoder.dim, model.text_encoder.dim) == (DIM, DIM)
        assert (model.feature_dim, model.text_dim) == (FEATURE_DIM, TEXT_DIM)

    def test_scores_every_image_with_every_caption(self, name: str) -> None:
        model = new_model(name)
        scores = model(new_batch(model))
        assert scores.cross.shape == (IMAGES, CAPTIONS)
        assert scores.cross.dtype == torch.float32
        assert scores.cross.isfinite().all()

    def test_scores_encodings_as_it_scores_a_batch(self, name: str) -> None:
        model: Any = new_model(name)
        batch = new_batch(model)
        encoded = model.score(model.embed_images(batch.regions), model.embed_captions(batch.text))
        torch.testing.assert_close(encoded.cross, model(batch).cross)

    def test_is_invariant_to_the_padding_of_captions(self, name: str) -> None:
        model = new_model(name)
        torch.testing.assert_close(
            model(new_batch(model, padding=3)).cross, model(new_batch(model)).cross
        )

    def test_scores_images_and_captions_independently(self, name: str) -> None:
        model: Any = new_model(name)
        batch = new_batch(model)
        images, captions = model.embed_images(batch.regions), model.embed_captions(batch.text)
        rows, columns = torch.tensor([2, 0]), torch.tensor([3, 1, 1])
        some = model.score(rows_of(images, rows), rows_of(captions, columns)).cross
        torch.testing.assert_close(some, model(batch).cross[rows][:, columns])

    def test_has_a_gradient_for_every_parameter(self, name: str) -> None:
        model = new_model(name)
        cross = model(new_batch(model)).cross
        (
            cross * torch.randn(cross.shape, generator=torch.Generator().manual_seed(3))
        ).sum().backward()
        assert [key for key, weight in model.named_parameters() if weight.grad is None] == []

    def test_is_the_same_after_save_and_load(self, name: str, tmp_path: Path) -> None:
        model = new_model(name)
        save_model(tmp_path, model)
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            "config.json",
            "model.safetensors",
        ]
        loaded = load_model(tmp_path)
        assert type(loaded) is type(model)
        assert not loaded.training
        assert loaded.config == model.config == json.loads((tmp_path / "config.json").read_text())
        assert loaded(new_batch(model)).cross.equal(model(new_batch(model)).cross)

    def test_is_a_dual_encoder_exactly_if_it_has_single_vectors(self, name: str) -> None:
        model = new_model(name)
        assert is_dual_encoder(model) == model.single_vector
        if model.single_vector:
            vectors = dual_encoder(model).embed_captions(new_text(model))
            torch.testing.assert_close(vectors.norm(dim=1), torch.ones(CAPTIONS))
        else:
            with pytest.raises(
                TypeError, match=f"a {name} has no single vector for an image: do this"
            ):
                dual_encoder(model, instead="do this")

    def test_refuses_encoders_of_different_dimensions(self, name: str) -> None:
        text_encoder = registry.split(REFS[name]["text_encoder"])[0]
        with pytest.raises(
            ValueError, match=rf"has dimension {DIM}, {text_encoder} 7, and the model dim={DIM}"
        ):
            new_model(name, text_encoder={"name": text_encoder, "dim": 7})

    def test_refuses_a_text_encoder_of_another_format(self, name: str) -> None:
        with pytest.raises(
            ValueError, match=r"reads values .*, and the text comes as sparse: choose another"
        ):
            build_model(
                {"name": name, "dim": DIM, **REFS[name]},
                feature_dim=5,
                text_dim=6,
                text_format="sparse",
            )

    def test_refuses_an_image_encoder_of_the_other_kind(self, name: str) -> None:
        other = "MultiLevelEncoder" if MODELS[name].__dict__["single_vector"] else "LinearEncoder"
        with pytest.raises(
            ValueError, match=rf"{name} needs an image encoder with .*, not {other}"
        ):
            new_model(name, image_encoder=other)

    def test_needs_its_encoders(self, name: str) -> None:
        with pytest.raises(
            ValueError,
            match=f"{name} needs image_encoder and text_encoder: give the name of a part",
        ):
            build_model(name, feature_dim=1, text_dim=1, text_format="vectors")


def test_tokens_need_a_vocabulary() -> None:
    ref = {"name": "TwoBranchModel", "dim": 4, **REFS["TwoBranchModel"]}
    with pytest.raises(ValueError, match="tokens need the size of their vocabulary"):
        build_model(ref, feature_dim=2, text_dim=3, text_format="tokens")


def test_model_without_a_configuration_cannot_be_saved(tmp_path: Path) -> None:
    model = new_model("TwoBranchModel")
    model.config = {}
    with pytest.raises(
        ValueError, match="has no configuration: build it with build_model to save it"
    ):
        save_model(tmp_path, model)
