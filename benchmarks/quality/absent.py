"""Does a search say "nothing like it" for absent concepts only?

    python -m benchmarks run quality.absent --run runs/flickr8k/fast

absent.yaml has 60 written queries of each kind. An image shows a query if its captions have all of
its words. Queries of absent concepts and near misses are searched without the images that show
them. The calibration is fitted on short captions of one half of the images of val; the captions of
the other half are the held-out ones. The collection has all images of the run, or those of val,
which the model has not seen in training.

The cosine from which a caption comes near a query (``NEAR``) was chosen among 0.03 to 0.2 on 1,000
images held out of Flickr8k's list of train, by the same written queries.
"""

import argparse
import re
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from benchmarks.common import Report
from benchmarks.quality.relevance import collections, embed, short_captions
from bifocal.onnx.encoders import Embedder
from bifocal.search import Search, SearchIndex
from bifocal.search.calibration.caption_relevance import near_rows, relevant_rows
from bifocal.search.calibration.fitting import calibrate, first_results, results_without

QUERIES = Path(__file__).with_name("absent.yaml")
KINDS = {"absent": "absent concepts", "near_misses": "near misses"}


def showing(index: SearchIndex, words: list[str]) -> list[str]:
    """Return the ids of the items whose captions have all words."""
    patterns = [re.compile(rf"\b(?:{word})") for word in words]
    texts = [" ".join(captions).lower() for captions in index.items["captions"].to_pylist()]
    shown = [all(pattern.search(text) for pattern in patterns) for text in texts]
    return [
        item_id for row, item_id in enumerate(index.ids) if shown[row] and not index.removed[row]
    ]


def measure(
    report: Report,
    index: SearchIndex,
    embedder: Embedder,
    texts: list[str],
    queries: NDArray[Any],
    ids: list[str],
) -> None:
    """Report notices of written queries, and held-out captions that are found, of one
    collection."""
    name = f"{len(index):,} images"
    own = np.array([index.row(item_id) for item_id in ids])
    images = np.random.default_rng(0).permutation(sorted(set(ids)))
    fitted = np.isin(ids, images[: len(images) // 2])
    described, near = (
        relevant_rows(index.items, texts, own.tolist()),
        list(near_rows(index, texts, own.tolist())),
    )

    def half(rows: list[NDArray[Any]], chosen: NDArray[np.bool_]) -> list[NDArray[Any]]:
        return [rows[number] for number in np.flatnonzero(chosen)]

    of_fitted = [text for text, chosen in zip(ids, fitted, strict=True) if chosen]
    calibration = calibrate(
        index, queries[fitted], of_fitted, half(described, fitted), half(near, fitted)
    )
    scores, relevant = first_results(index, queries[~fitted], half(described, ~fitted))
    without, _ = results_without(index, queries[~fitted], half(near, ~fitted))
    found, count = calibration.found(scores), int((~fitted).sum())
    kept = found[:count][relevant[:count]]
    report.add(
        f"{name}: held-out captions with a relevant first result that are found",
        float(kept.mean()),
        at_least=0.5,
        reference=f"{len(kept)} captions",
    )
    report.add(
        f"{name}: held-out captions searched without all images that come near that are found",
        calibration.found(without).mean(),
        at_most=0.05,
        reference=f"{count} captions",
    )
    report.add(
        f"{name}: held-out captions searched without the images that they describe that are found",
        found[count:].mean(),
        reference=f"{count} captions",
    )
    index.calibration = calibration
    ask_written(report, name, index, embedder)


def ask_written(report: Report, name: str, index: SearchIndex, embedder: Embedder) -> None:
    """Report notices of written queries in a calibrated index, whose items have captions."""
    written = yaml.safe_load(QUERIES.read_text(encoding="utf-8"))
    for kind, rows in written.items():
        vectors, right, notice = embed(embedder, [text for text, *_ in rows]), [], []
        for vector, (_, *words) in zip(vectors, rows, strict=True):
            shown = showing(index, words)
            searched = index if kind == "present" else index.without_items(shown)
            (results,) = Search(searched).batch(vector[None], 1, sentences=True)
            right.append(results[0].id in shown)
            notice.append(not results.found)
        asked, shares = f"{len(rows)} queries", np.array(notice, dtype=float)
        if kind == "present":
            report.add(
                f"{name}: written queries whose first result is right",
                float(np.mean(right)),
                reference=asked,
            )
            report.add(
                f"{name}: notices, written queries whose first result is right",
                float(shares[right].mean()),
                at_most=0.2,
                reference=f"{sum(right)} queries",
            )
        else:
            bar = 0.9 if kind == "absent" else None
            report.add(
                f"{name}: notices, written {KINDS[kind]}",
                float(shares.mean()),
                at_least=bar,
                reference=asked,
            )


def main() -> None:
    """Calibrate on one half of the images of val, and ask the written queries and the captions of
    the other half."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, required=True, help="run folder with an index")
    artifacts = parser.parse_args().run / "artifacts"
    embedder, (texts, ids) = Embedder(artifacts / "onnx"), short_captions(artifacts)
    report, queries = Report("quality.absent"), embed(embedder, texts)
    for index in collections(artifacts, ids):
        measure(report, index, embedder, texts, queries, ids)
    report.write()


if __name__ == "__main__":
    main()
