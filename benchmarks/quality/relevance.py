"""How often does a search find something for captions of no image?

    python -m benchmarks run quality.relevance --run runs/flickr8k/fast

The queries are the captions of the split val with at most 12 words, as in ``build_index``. One half
of the images calibrates the search; the captions of the other half are the queries. Flickr8k does
not say which further images a caption describes: here and in the calibration, images with a similar
caption, see ``caption_relevance``. A query has no match if the images that it describes are left
out of the search, or if its only image was removed. The calibration error counts each query with
and without its images. The collection has all images of the run, or only the images of val, which
the model has not seen in training.
"""

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import Report
from bifocal.datasets import read_dataset
from bifocal.onnx.encoders import Embedder
from bifocal.search import Search, SearchIndex
from bifocal.search.calibration.caption_relevance import relevant_rows
from bifocal.search.calibration.fitting import (
    FALSE_POSITIVES,
    calibrate,
    calibration_error,
    first_results,
)

WORDS, BATCH = 12, 32


def without_calibration(index: SearchIndex) -> SearchIndex:
    """Return an exact index of the same items."""
    return SearchIndex(
        index.items, index.vectors, index.bias, index.description, removed=index.removed
    )


def measure(
    report: Report,
    index: SearchIndex,
    texts: list[str],
    queries: NDArray[np.float32],
    item_ids: list[str],
) -> None:
    """Report false positives, calibration error and found results of one collection."""
    name, ids = f"{len(index):,} images", np.array(item_ids)
    images = np.random.default_rng(0).permutation(sorted(set(item_ids)))
    fitted = np.isin(ids, images[: len(images) // 2])
    described = relevant_rows(index.items, texts, [index.row(item_id) for item_id in item_ids])
    of_fitted, of_asked = (
        [described[row] for row in np.flatnonzero(half)] for half in (fitted, ~fitted)
    )
    calibration = calibrate(index, queries[fitted], ids[fitted].tolist(), of_fitted)
    asked, own = queries[~fitted], ids[~fitted]
    scores, relevant = first_results(index, asked, of_asked)
    probabilities = calibration.probabilities(scores)[:, 0]
    found = probabilities >= calibration.threshold
    report.add(
        f"{name}: captions searched without the images that they describe that find something",
        found[len(asked) :].mean(),
        at_most=FALSE_POSITIVES,
        reference=f"{len(asked)} captions",
    )
    removed = index.without_items(sorted(set(own.tolist())))
    removed.calibration = calibration
    left = np.array([not removed.removed[rows].all() for rows in of_asked])
    hits = Search(removed).batch(asked, 1, sentences=True)
    found_left = np.array([(results.relevance or 0.0) >= calibration.threshold for results in hits])
    report.add(
        f"{name}: captions of removed images that describe no other one, and find something",
        found_left[~left].mean(),
        at_most=FALSE_POSITIVES,
        reference=f"{(~left).sum()} captions",
    )
    report.add(
        f"{name}: captions of removed images that describe another one, and find something",
        found_left[left].mean(),
        reference=f"{left.sum()} captions",
    )
    report.add(
        f"{name}: calibration error", calibration_error(probabilities, relevant), at_most=0.05
    )
    report.add(
        f"{name}: relevant first results that are found",
        found[relevant].mean(),
        reference=f"{relevant.sum()} of {len(asked)} first results are relevant",
    )


def embed(embedder: Embedder, texts: list[str]) -> NDArray[np.float32]:
    """Return the vectors of sentences."""
    parts = [
        embedder.embed_sentences(texts[start : start + BATCH])
        for start in range(0, len(texts), BATCH)
    ]
    return np.concatenate(parts)


def short_captions(artifacts: Path) -> tuple[list[str], list[str]]:
    """Return the captions of val that are as short as queries, and the ids of their images."""
    captions = read_dataset(artifacts / "dataset").split("val").captions
    captions = captions[[len(text.split()) <= WORDS for text in captions["text"]]]
    return captions["text"].tolist(), captions["image_id"].astype(str).tolist()


def collections(artifacts: Path, item_ids: list[str]) -> list[SearchIndex]:
    """Return uncalibrated indexes of all images of a run, and of the images with these ids."""
    index, known = without_calibration(SearchIndex.open(artifacts / "index")), set(item_ids)
    return [index, index.without_items([item_id for item_id in index.ids if item_id not in known])]


def main() -> None:
    """Calibrate on one half of the images of val, and report on the other."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, required=True, help="run folder with an index")
    artifacts = parser.parse_args().run / "artifacts"
    texts, item_ids = short_captions(artifacts)
    report, queries = Report("quality.relevance"), embed(Embedder(artifacts / "onnx"), texts)
    for index in collections(artifacts, item_ids):
        measure(report, index, texts, queries, item_ids)
    report.write()


if __name__ == "__main__":
    main()
