"""How often does a calibrated search find something for a caption whose image was removed?

    python -m benchmarks run quality.relevance --run runs/flickr8k/best

Short captions of the split val are the queries. The queries of one half of the images calibrate the search. The images
of the other half are removed from the index, and their queries are asked: every result is then a false positive,
although another image may fit as well. In use, an index is calibrated when it is built, so the calibration follows the
removal. The first value shows what an older calibration costs: it precedes the removal. The queries of the first half
choose the threshold: the upper confidence bound of their false positives is 5 percent. The calibration error counts
each query twice: once with its own image in the collection, and once without. The collection has all images of the run,
or those of val alone.
"""

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import Report
from bifocal.datasets import read_dataset
from bifocal.search import SearchIndex
from bifocal.search.calibration import FALSE_POSITIVES, calibrate, calibration_error, first_results
from bifocal.search.changes import remove_items
from bifocal.serving.embedder import Embedder

WORDS, BATCH = 8, 32


def without_calibration(index: SearchIndex) -> SearchIndex:
    """Return an exact index of the same items."""
    return SearchIndex(index.items, index.vectors, index.bias, index.description, removed=index.removed)


def measure(report: Report, name: str, index: SearchIndex, queries: NDArray[np.float32], item_ids: list[str]) -> None:
    """Report false positives, calibration error and kept results of one collection."""
    images = np.random.default_rng(0).permutation(sorted(set(item_ids)))
    fitted = np.isin(item_ids, images[: len(images) // 2])
    ids = np.array(item_ids)
    asked, own = queries[~fitted], ids[~fitted]
    removed = remove_items(index, sorted(set(own.tolist())))
    before, after = (calibrate(of, queries[fitted], ids[fitted].tolist()) for of in (index, removed))
    sizes = f"{len(own)} captions of {len(set(own.tolist()))} images"
    for when, calibration in (("before", before), ("after", after)):
        removed.calibration = calibration
        found = np.array([bool(hits) for hits in removed.search(asked, 1, corrected=True, relevant=True)])
        report.add(
            f"{name}, calibrated {when} the removal: captions of removed images that find something", found.mean(),
            at_most=FALSE_POSITIVES if when == "after" else None, reference=sizes,
        )  # fmt: skip
    scores, relevant = first_results(index, asked, np.array([index.row(item_id) for item_id in own]))
    probabilities = before.probabilities(scores)[:, 0]
    report.add(f"{name}: calibration error", calibration_error(probabilities, relevant), at_most=0.05)
    kept = probabilities[relevant] >= before.threshold
    report.add(f"{name}: first results with the own image that reach the threshold", kept.mean(),
               reference=f"{relevant.sum()} of {len(own)} first results are the own image")  # fmt: skip


def main() -> None:
    """Calibrate on one half of the images of val, and report on the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True, help="run folder with an index")
    artifacts = parser.parse_args().run / "artifacts"
    captions = read_dataset(artifacts / "dataset").split("val").captions
    captions = captions[[len(text.split()) <= WORDS for text in captions["text"]]]
    texts, item_ids = captions["text"].tolist(), captions["image_id"].astype(str).tolist()
    embedder = Embedder(artifacts / "onnx")
    parts = [embedder.embed_sentences(texts[start : start + BATCH]) for start in range(0, len(texts), BATCH)]
    index = without_calibration(SearchIndex.open(artifacts / "index"))
    report, queries = Report("quality.relevance"), np.concatenate(parts)
    measure(report, f"{len(index):,} images", index, queries, item_ids)
    val = set(read_dataset(artifacts / "dataset").split("val").images["image_id"].astype(str))
    small = remove_items(without_calibration(index), [item_id for item_id in index.ids if item_id not in val])
    measure(report, f"{len(small):,} images", small, queries, item_ids)
    report.write()


if __name__ == "__main__":
    main()
