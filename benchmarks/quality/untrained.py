"""How well do the encoders 'small' search photographs without training?

    python -m benchmarks run quality.untrained [--data ../shared/data]

EfficientNet-Lite2 and all-MiniLM-L6-v2, exported, without torch: class probabilities of an image
times sentence vectors of the classes. The images are the dev list of Flickr8k with all captions.
Nothing was fitted on Flickr8k, except that the size of the image was chosen on this list among 256,
288 and 320 pixels. The bars are values of the equation at 260 pixels, with vectors that are
centered by the training images and captions. Intervals are bootstraps over images.

Notices "nothing like it" are calibrated without captions, see
``bifocal.search.calibration.fitting``; the queries are those of quality.absent. Captions only say
which images show a query. ``LIKE`` was chosen with these queries, also on 1,008 images of the
training list and on random hundreds of both.
"""

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.common import Report, load, wall_seconds
from benchmarks.quality.absent import ask_written
from bifocal.metrics.bootstrap import mean_interval
from bifocal.onnx.encoders import Embedder
from bifocal.onnx.files import model_hash
from bifocal.search import SearchIndex
from bifocal.search.calibration.fitting import calibrate_by_names
from pipelines.app.encoders import encoder_folder
from pipelines.app.index_folder import name_vectors

BATCH = 8
BARS = {1: (8.6, 8.7), 10: (27.9, 31.9)}
"""Percent of the images and of the captions whose match is in the first K."""


def main() -> None:
    """Embed, rank, and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    options = parser.parse_args()
    folder = options.data / "flickr8k"
    names = (folder / "Flickr_8k.devImages.txt").read_text().split()
    captions: dict[str, list[str]] = {name: [] for name in names}
    for line in (folder / "Flickr8k.token.txt").read_text().splitlines():
        name, _, text = line.partition("\t")
        if (name := name.partition("#")[0]) in captions:
            captions[name].append(text)
    encoders = encoder_folder("small", options.data / "weights")
    embedder = Embedder(encoders)
    texts = [text for name in names for text in captions[name]]
    own = np.repeat(np.arange(len(names)), [len(captions[name]) for name in names])
    sentences = np.concatenate(
        [
            embedder.embed_sentences(texts[start : start + BATCH])
            for start in range(0, len(texts), BATCH)
        ]
    )
    parts = []

    def embed() -> None:
        for start in range(0, len(names), BATCH):
            files = [
                (folder / "images" / name).read_bytes() for name in names[start : start + BATCH]
            ]
            parts.append(embedder.embed_images(files))

    report, seconds = Report("quality.untrained"), wall_seconds(embed)
    scores = np.concatenate(parts) @ sentences.T
    true = scores[own, np.arange(len(texts))]
    best = np.maximum.reduceat(true, np.unique(own, return_index=True)[1])
    ranks = {
        "captions of an image": ((scores > best[:, None]).sum(axis=1), names),
        "image of a caption": ((scores > true).sum(axis=0), [names[row] for row in own]),
    }
    for k, bars in BARS.items():
        for (direction, (rank, groups)), bar in zip(ranks.items(), bars, strict=True):
            hits = 100.0 * (rank < k)
            low, high = mean_interval(hits, groups, resamples=2000, seed=0)
            reference = f"95 %: {low:.1f} to {high:.1f}; chance {100 * k / len(names):.1f}"
            report.add(
                f"{direction}, R@{k}", float(hits.mean()), "%", at_least=bar, reference=reference
            )
    items = pa.table({"item_id": names, "captions": [captions[name] for name in names]})
    index = SearchIndex(items, np.concatenate(parts).astype(np.float16))
    index.calibration = calibrate_by_names(index, *name_vectors(encoders, model_hash(encoders)))
    ask_written(report, f"{len(names):,} images", index, embedder)
    report.add("images per second", len(names) / seconds, "/ s", reference=load())
    report.write()


if __name__ == "__main__":
    main()
