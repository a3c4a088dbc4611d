"""Do people's corrections teach a model?

    python -m benchmarks run quality.corrections --run RUN --captions Flickr8k.token.txt

RUN is a run of 'bifocal train' on 500 images of Flickr8k's list of train, whose features and recipe
are used. For each seed, each image has one of its five captions, the model is trained on the images
outside the split test, and 60 corrections are made as a person would, by the second caption of an
image of train: "right" if the image is not among the first ten results, "not this" for a first
result that is another image. The model is trained again. Recall at 10 of the three captions of each
image that no training has, among all images, on the corrected images and on all others; intervals
by a bootstrap over images.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from benchmarks.common import Report
from bifocal.datasets import Dataset, read_dataset
from bifocal.features import open_features
from bifocal.models.batch import ImageCaptionPairs, dual_encoder, embed
from bifocal.registry import build
from bifocal.text import TextStore
from bifocal.text.vectorizers.base import load_vectorizer, training_documents, write_text
from bifocal.training import FitOptions, TrainingPhase, new_model
from bifocal.training.inputs import TrainingInputs
from bifocal.training.members import train_members
from components.train_embedding.spec import TrainEmbeddingParams
from runtime import parameters
from runtime.parameters import build_parts, options_of

CORRECTIONS, K = 60, 10
Array = NDArray[Any]


def read_captions(file: Path, tables: Dataset, seed: int) -> pd.DataFrame:
    """Return the five captions of each image, in an order of the seed."""
    known, random = set(tables.images["image_id"]), np.random.default_rng(seed)
    lines = (line.split("\t") for line in file.read_text().splitlines())
    rows = [(key.partition("#")[0], text) for key, text in lines]
    found = pd.DataFrame([row for row in rows if row[0] in known], columns=["image_id", "text"])
    found["place"] = random.random(len(found))
    found["place"] = found.groupby("image_id")["place"].rank().astype(int) - 1
    return found.assign(caption_id=range(len(found)))


def train(
    run: Path, values: dict[str, Any], tables: Dataset, captions: pd.DataFrame, seed: int
) -> Array:
    """Train, and return the place of each caption's own image among all images (captions,)."""
    params = TrainEmbeddingParams.model_validate({"seed": seed, **values["train_embedding"]})
    with tempfile.TemporaryDirectory() as work:
        text, learned = Path(work) / "text", tables.split("train").captions
        text.mkdir()
        vectorizer: Any = build(
            "bifocal.text.vectorizers", values["vectorize_captions"]["vectorizer"]
        )
        ids, texts = learned["image_id"].tolist(), learned["text"].tolist()
        vectorizer.fit(training_documents(vectorizer, ids, texts), seed, Path(work) / "fitting")
        write_text(text, vectorizer, captions["caption_id"].tolist(), captions["text"].tolist())
        features = open_features(run / "artifacts" / "features", tables)
        store = TextStore(text)
        inputs = TrainingInputs(tables, features, store, load_vectorizer(text), params.precision)
        trained = train_members(
            lambda member: new_model(params.model, inputs, seed=member),
            lambda: [TrainingPhase(**build_parts(phase)) for phase in params.phases],
            inputs,
            closed_form=[
                build("bifocal.training.initialization", part) for part in params.closed_form
            ],
            checkpoints=Path(work) / "checkpoints",
            seed=seed,
            options=options_of(FitOptions, params),
        )
        none = tables.corrections.iloc[:0]
        pairs = ImageCaptionPairs(
            replace(tables, captions=captions, corrections=none), features, store
        )
        images, sentences = embed(dual_encoder(trained.model), pairs)
        scores = sentences @ images.T
        order = scores.argsort(dim=1, descending=True)
        own = (order == pairs.image_of_caption[:, None]).int().argmax(dim=1)
        return np.stack([own.numpy(), order[:, 0].numpy()])


def correct(
    tables: Dataset, captions: pd.DataFrame, found: Array, seed: int
) -> tuple[pd.DataFrame, pd.DataFrame, set[str]]:
    """Return captions and negatives of the corrections, and the images that these are about."""
    ids = tables.images["image_id"].tolist()
    second = captions[captions["place"] == 1].set_index("image_id")
    rows = {caption: row for row, caption in enumerate(captions["caption_id"])}
    names = tables.split("train").images["image_id"].tolist()
    right, wrong, about = list[Any](), list[Any](), set[str]()
    for name in np.random.default_rng(seed).permutation(names).tolist():
        caption = second.loc[name]
        place, first = found[:, rows[caption["caption_id"]]]
        made = ([(right, name)] if place >= K else []) + ([(wrong, ids[first])] if place else [])
        for kind, image in made[: CORRECTIONS - len(right) - len(wrong)]:
            kind.append(
                {"caption_id": caption["caption_id"], "image_id": image, "text": caption["text"]}
            )
            about.add(name)
        if len(right) + len(wrong) == CORRECTIONS:
            break
    columns = ["caption_id", "image_id", "text"]
    return pd.DataFrame(right, columns=columns), pd.DataFrame(wrong, columns=columns), about


def gains(run: Path, file: Path, seed: int) -> dict[str, Array]:
    """Return the gain in recall of each corrected and each other image, in percentage points."""
    values = parameters.load(run / "params.yaml")
    whole = read_dataset(run / "artifacts" / "dataset")
    captions = read_captions(file, whole, seed)
    first = captions.loc[captions["place"] == 0, ["caption_id", "image_id", "text"]]
    tables = replace(whole, captions=first, phrases=whole.phrases.iloc[:0])
    before = train(run, values, tables, captions, seed)
    right, wrong, about = correct(tables, captions, before, seed)
    learned = [
        name for name in wrong["image_id"] if name in set(tables.split("train").images["image_id"])
    ]
    wrong = wrong[wrong["image_id"].isin(learned)].assign(right=False)  # never of val and test
    taught = replace(
        tables, captions=pd.concat([first, right], ignore_index=True), corrections=wrong
    )
    after = train(run, values, taught, captions, seed)
    held_out = (captions["place"] > 1).to_numpy()
    change = 100.0 * ((after[0] < K).astype(int) - (before[0] < K).astype(int))
    of_image = pd.Series(change[held_out]).groupby(captions["image_id"].to_numpy()[held_out]).mean()
    chosen = of_image.index.isin(about)
    print(f"seed {seed}: {len(right)} right, {len(wrong)} not this", flush=True)
    return {"corrected": of_image[chosen].to_numpy(), "other": of_image[~chosen].to_numpy()}


def main() -> None:
    """Train before and after the corrections with every seed, and report the differences."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--captions", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options = parser.parse_args()
    torch.manual_seed(0)
    found = [gains(options.run, options.captions, seed) for seed in options.seeds]
    report, random = Report("quality.corrections"), np.random.default_rng(0)
    for kind in ("corrected", "other"):
        values = np.concatenate([each[kind] for each in found])
        means = random.choice(values, (2000, len(values))).mean(axis=1)
        low, high = np.quantile(means, [0.025, 0.975])
        name = f"gain in recall at {K} of held-out captions, {kind} images"
        note = f"{low:+.1f} to {high:+.1f}, {len(found)} seeds"
        report.add(name, float(values.mean()), "points", reference=note)
        end, text = (
            (low, "lower end")
            if kind == "corrected"
            else (
                values.mean() + high - low,
                "with the width of its interval",
            )
        )
        report.add(f"{name}, {text}", float(end), "points", at_least=0.0)
    report.write()


if __name__ == "__main__":
    main()
