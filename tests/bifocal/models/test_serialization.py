"""Several trained models as one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from bifocal.export.encoders import example_inputs, export_encoder
from bifocal.features import RegionBatch
from bifocal.localization.base import AutoLocalizer
from bifocal.models import build_model, concatenate_models, load_model, save_model
from bifocal.models.base import Model
from bifocal.models.batch import ImageCaptionPairs
from bifocal.onnx.sessions import REGIONS, open_session, run_graph
from bifocal.text import TextBatch

VECTORS = {"feature_dim": 12, "text_dim": 7, "text_format": "vectors"}


def new_models(
    text_encoder: str = "LinearEncoder",
    count: int = 3,
    image_encoder: str = "SMILEEncoder",
    **sizes: Any,
) -> list[Model]:
    parts = {"image_encoder": {"name": image_encoder}, "text_encoder": {"name": text_encoder}}
    models = []
    for seed in range(count):
        torch.manual_seed(seed)
        models.append(
            build_model({"name": "TwoBranchModel", "dim": 8, **parts}, **sizes or VECTORS).eval()
        )
    return models


def check_scores(joined: Model, models: list[Model], regions: RegionBatch, text: TextBatch) -> None:
    """The score is the mean of the scores of the models, and the vectors have unit norm."""
    images, captions = joined.embed_images(regions), joined.embed_captions(text)
    torch.testing.assert_close(images.norm(dim=1), torch.ones(len(images)))
    each = [model.embed_images(regions) @ model.embed_captions(text).T for model in models]
    torch.testing.assert_close(joined.score(images, captions).cross, torch.stack(each).mean(dim=0))


def test_score_is_the_mean_of_the_scores(tmp_path: Path) -> None:
    models = new_models()
    regions = RegionBatch(torch.randn(5, 4, 12), torch.rand(5, 4) < 0.8, torch.rand(5, 4, 4))
    regions.mask[:, 0] = True
    text = TextBatch(torch.randn(6, 7), torch.ones(6, dtype=torch.int64))
    joined = concatenate_models(models)
    check_scores(joined, models, regions, text)
    save_model(tmp_path, joined)
    check_scores(load_model(tmp_path), models, regions, text)
    phrases = joined.embed_captions(TextBatch(text.values[:5], text.lengths[:5]))
    localizer = AutoLocalizer().for_model(joined)
    assert localizer is not None
    heatmaps = localizer(joined.image_encoder, regions, phrases).scores
    each = [
        AutoLocalizer().for_model(model)(model.image_encoder, regions, phrase * 3**0.5).scores
        for model, phrase in zip(models, phrases.chunk(3, dim=1), strict=True)
    ]
    torch.testing.assert_close(heatmaps, torch.stack(each).mean(dim=0))


def test_members_keep_their_own_word_vectors(pairs: ImageCaptionPairs) -> None:
    sizes = {
        "feature_dim": 12,
        "text_dim": 8,
        "text_format": "tokens",
        "vocabulary_size": len(pairs.text.vocabulary),
    }
    models = new_models("GRUEncoder", 2, **sizes)
    batch = pairs.batch(torch.arange(12))
    check_scores(concatenate_models(models), models, batch.regions, batch.text)


def test_joined_model_is_exported_with_its_regions(tmp_path: Path) -> None:
    joined = concatenate_models(new_models(count=2))
    save_model(tmp_path, joined)
    embed: dict[str, Callable[..., Any]] = {
        "image_encoder": lambda features, mask: joined.embed_images(
            RegionBatch(features, mask, features)
        ),
        "text_encoder": lambda values, lengths: joined.embed_captions(TextBatch(values, lengths)),
    }
    for branch in ("image_encoder", "text_encoder"):
        file = tmp_path / f"{branch}.onnx"
        export_encoder(tmp_path, branch, file)
        inputs = example_inputs(joined, branch, batch=5, length=7, seed=1)
        arrays = [value.numpy() for value in inputs]
        (vectors,) = run_graph(open_session(file), arrays)
        np.testing.assert_allclose(vectors, embed[branch](*inputs).detach().numpy(), atol=1e-5)
        if branch == "image_encoder":
            (regions,) = run_graph(open_session(file), arrays, REGIONS)
            g = [
                normalize(member.convolution(inputs[0]), dim=2)
                for member in joined.image_encoder.members
            ]
            np.testing.assert_allclose(
                regions, (torch.cat(g, dim=2) / 2**0.5).detach().numpy(), atol=1e-5
            )


def test_mean_of_the_joined_activation_maps_is_the_embedding() -> None:
    joined = concatenate_models(new_models(image_encoder="LinearEncoder"))
    regions = RegionBatch(torch.randn(5, 4, 12), torch.rand(5, 4) < 0.8, torch.rand(5, 4, 4))
    regions.mask[:, 0] = True
    maps = joined.image_encoder.activation_maps(regions)
    mean = torch.stack(
        [vectors[mask].mean(dim=0) for vectors, mask in zip(maps.vectors, maps.mask, strict=True)]
    )
    torch.testing.assert_close(mean, joined.embed_images(regions))
    with pytest.raises(ValueError, match="ProjectionEncoder has no activation_maps"):
        concatenate_models(
            new_models(image_encoder="ProjectionEncoder")
        ).image_encoder.activation_maps(regions)


def test_models_that_cannot_be_joined_are_errors() -> None:
    (model,) = new_models(count=1)
    assert concatenate_models([model]) is model
    (other,) = new_models("ProjectionEncoder", count=1)
    with pytest.raises(ValueError, match="different arguments"):
        concatenate_models([model, other])
