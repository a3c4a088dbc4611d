"""Test images on which two models can be compared: in the training of neither."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from bifocal.datasets import Dataset
from bifocal.datasets.duplicates import near_duplicates
from bifocal.evaluation.rank_tables import evaluated_images
from bifocal.features import FeatureStore
from bifocal.promotion.exported_model import ExportedModel

UNKNOWN = ""


@dataclass(frozen=True)
class CommonImages:
    """Test images of a comparison."""

    split: Dataset  # the images with their captions
    contents: list[
        str
    ]  # identity of each image: SHA-256 of its file, or of its stored features if it has no file
    test_images: int  # number of images in the test split of the dataset
    left_out: dict[str, int]  # number of test images that are not in ``split``, by reason
    copies: int  # test images whose file is also in train or val
    near_duplicates: int  # test images that look like an image in train or val
    notes: list[str]  # checks that could not be made


def common_images(
    dataset: Dataset,
    models: Sequence[ExportedModel],
    stores: Sequence[FeatureStore | None],
) -> CommonImages:
    """Return the test images of ``dataset`` on which all models can be ranked, with the captions of
    the first model."""
    test, others = dataset.split("test"), dataset.images[dataset.images["split"] != "test"]
    images = test.images.assign(
        content=_contents(test, next((store for store in stores if store is not None), None))
    )
    keep = images["image_id"].isin(test.captions["image_id"])
    left_out = {"without a caption": int((~keep).sum())}
    copied = images["sha256"].isin(set(others["sha256"].dropna()) - {UNKNOWN})
    for name, remove in (
        ("without a SHA-256 of the file or the features", images["content"] == UNKNOWN),
        ("with the same content as another test image", images["content"].duplicated()),
        *_model_reasons(images, models, stores),
    ):
        remove &= ~copied  # the promotion is refused for them
        left_out[name] = int((keep & remove).sum())
        keep &= ~remove
    copied &= keep
    near, notes = _near_duplicates(dataset, images[keep & ~copied])
    similar = keep & images["image_id"].isin(near)
    left_out["copies of training images"], left_out["near-duplicates of training images"] = (
        copied.sum(),
        similar.sum(),
    )
    kept = images[keep & ~copied & ~similar]
    in_split = test.captions["image_id"].isin(kept["image_id"])
    split = replace(
        test,
        images=kept.drop(columns="content").reset_index(drop=True),
        captions=test.captions[in_split].reset_index(drop=True),
    )
    reasons = {name: int(count) for name, count in left_out.items() if count}
    return CommonImages(
        split,
        kept["content"].tolist(),
        len(images),
        reasons,
        int(copied.sum()),
        int(similar.sum()),
        notes,
    )


def _contents(test: Dataset, store: FeatureStore | None) -> list[str]:
    hashes: list[str] = test.images["sha256"].fillna(UNKNOWN).tolist()
    if all(hashes) or store is None:
        return hashes
    features = evaluated_images(test.images, store)["features"]
    return [content or stored for content, stored in zip(hashes, features, strict=True)]


def _model_reasons(
    images: pd.DataFrame,
    models: Sequence[ExportedModel],
    stores: Sequence[FeatureStore | None],
) -> list[tuple[str, "pd.Series[bool]"]]:
    """Return the reasons for which images are unfit to compare the first model with the others."""
    reasons = []
    for number, (model, store) in enumerate(zip(models, stores, strict=True)):
        who = "the other model" if number else "the candidate"
        reasons.append((f"in the training of {who}", images["content"].isin(model.trained_on)))
        if not number:
            continue
        identity = model.evaluated_contents
        reasons.append(
            (
                "without a file, and not in the test split of the other model",
                (images["sha256"].fillna(UNKNOWN) == UNKNOWN)
                & ~images["content"].isin(set(identity)),
            )
        )
        if store is not None:
            features = dict(zip(identity, model.evaluated_on["features"], strict=True))
            stored = evaluated_images(images, store)["features"].to_numpy()
            other = images["content"].map(features) != stored
            reasons.append(("with other features than the other model's", other))
    return reasons


def _near_duplicates(dataset: Dataset, images: pd.DataFrame) -> tuple[set[str], list[str]]:
    """Return the ids of ``images`` that look like an image of train or val, and what could not be
    compared."""
    others = dataset.images[(dataset.images["split"] != "test") & dataset.images["path"].notna()]
    images = images[images["path"].notna()]
    if not len(images) or not len(others):
        return set(), [
            "near-duplicates were not searched: the dataset has no image files of test and "
            "another split"
        ]

    pairs = near_duplicates(
        images["image_id"].tolist(), others["image_id"].tolist(), dataset.open_image
    )
    return {pair.first for pair in pairs}, []
