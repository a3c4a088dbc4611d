"""Do ELMo and the metrics give the values of their authors' programs?

    python -m benchmarks run quality.published_programs FLICKR8K ELMO EXPECTED

FLICKR8K has Flickr8k.token.txt. ELMO is AllenNLP's test model (options.json, lm_weights.hdf5,
vocab_test.txt, sentences.json), EXPECTED has its elmo_token_embeddings.hdf5 and
lm_embeddings_*.hdf5, from test_fixtures/elmo of github.com/allenai/allennlp. The packages
eccv-caption and pycocoevalcap bring the other programs; METEOR needs java. ECCV Caption's two lists
are ranked by random vectors of 24 dimensions; METEOR compares captions of Flickr8k by word forms
and stems.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import h5py
import numpy as np
import torch

from benchmarks.common import Report
from bifocal.evaluation.retrieval.judged_retrieval import (
    JudgedRetrieval,
    candidate_rows,
    read_judged_pairs,
)
from bifocal.metrics.ranking.meteor import meteor, meteor_sentence
from bifocal.text import tokenize
from bifocal.text.elmo import Elmo

TOLERANCE = 1e-5
PAIRS = 2000


def main() -> None:
    """Report the largest deviations from the published programs."""
    torch.set_num_threads(1)
    flickr8k, elmo, expected = map(Path, sys.argv[1:])
    report = Report("quality.published_programs")
    _elmo(report, elmo, expected)
    _eccv_caption(report)
    _meteor(report, flickr8k)
    report.write()


def _elmo(report: Report, folder: Path, expected: Path) -> None:
    elmo = Elmo.load(folder / "options.json", folder / "lm_weights.hdf5")
    words = (folder / "vocab_test.txt").read_text().splitlines()
    with h5py.File(expected / "elmo_token_embeddings.hdf5") as file:
        published = file["embedding"][...]
    ours = np.stack([elmo.layers([[word]])[0][0, 0, : elmo.dim // 2] for word in words])
    equal = np.abs(ours - published).max(axis=1) <= TOLERANCE
    others = ", ".join(word for word, is_equal in zip(words, equal, strict=True) if not is_equal)
    report.add(
        "ELMo, token vectors within 1e-5",
        int(equal.sum()),
        f"of {len(words)}",
        at_least=len(words) - 2,
        reference=f"others: {others}, which mark the ends of a sentence",
    )
    deviations = []
    for number, sentences in enumerate(json.loads((folder / "sentences.json").read_text())):
        with h5py.File(expected / f"lm_embeddings_{number}.hdf5") as file:
            published = np.concatenate(list(file["0"][...]), axis=-1)
        deviations.append(np.abs(elmo.layers([sentences[0].split()])[0][-1] - published).max())
    report.add("ELMo, first sentences", float(max(deviations)), at_most=TOLERANCE)


def _eccv_caption(report: Report) -> None:
    from eccv_caption import Metrics, metrics

    folder = Path(metrics.__file__).parent / "data"
    own = json.loads((folder / "original_image_to_caption.json").read_text())
    images = sorted(own, key=int)
    captions = [str(caption) for image in images for caption in own[image]]
    pairs = read_judged_pairs(folder, "eccv", "test")
    answers, absent = candidate_rows(pairs, images, captions, "ECCV Caption")
    generator = torch.Generator().manual_seed(0)
    sides = torch.randn(5000, 24, generator=generator)
    noise = 1.5 * torch.randn(25_000, 24, generator=generator)
    vectors = sides, sides.repeat_interleave(5, dim=0) + noise
    evaluator, ids, ours, lists = JudgedRetrieval(), (images, captions), [], []
    for queries, rows in enumerate(answers):
        query, candidates = vectors[queries], vectors[1 - queries]

        def scores(
            row: torch.Tensor,
            column: torch.Tensor,
            query: torch.Tensor = query,
            candidates: torch.Tensor = candidates,
        ) -> torch.Tensor:
            return query[row] @ candidates[column].T

        ours.append(evaluator.measure(scores, rows, len(candidates)).mean(dim=0))
        best = scores(torch.tensor(list(rows)), torch.arange(len(candidates))).topk(300).indices
        lists.append(
            {
                int(ids[queries][row]): [int(ids[1 - queries][one]) for one in found]
                for row, found in zip(rows, best.tolist(), strict=True)
            }
        )
    names = ("eccv_r1", "eccv_rprecision", "eccv_map_at_r")
    package = Metrics().compute_all_metrics(*lists, target_metrics=names, Ks=(1,), verbose=False)
    published = [[package[name][side] for name in names] for side in ("i2t", "t2i")]
    mine = [[float(values[0]), *values[-2:].tolist()] for values in ours]
    report.add(
        "ECCV Caption: R@1, R-precision, mAP@R",
        float(np.abs(np.subtract(mine, published)).max()),
        at_most=TOLERANCE,
        reference=f"{len(answers[0]):,} and {len(answers[1]):,} queries; {absent} answers absent",
    )
    for name, rows, of_coco in zip(("captions", "images"), answers, (5, 1), strict=True):
        positives = sum(map(len, rows.values())) / len(rows) / of_coco
        report.add(f"ECCV Caption, positive {name}, relative to COCO", positives, "times")


def _meteor(report: Report, flickr8k: Path) -> None:
    import pycocoevalcap

    captions: dict[str, list[str]] = {}
    for line in (flickr8k / "Flickr8k.token.txt").read_text().splitlines():
        key, _, text = line.partition("\t")
        captions.setdefault(key.partition("#")[0], []).append(" ".join(tokenize(text)))
    generator = np.random.default_rng(0)
    chosen = [list(captions.values())[row] for row in generator.permutation(len(captions))[:PAIRS]]
    pairs = [
        (texts[0], (texts if number % 10 == 0 else chosen[number - 1])[1])
        for number, texts in enumerate(chosen)
    ]
    jar = Path(pycocoevalcap.__path__[0]) / "meteor" / "meteor-1.5.jar"
    with TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("hypotheses", "references")]
        for file, texts in zip(files, zip(*pairs, strict=True), strict=True):
            file.write_text("\n".join(texts) + "\n")
        options = ["-l", "en", "-m", "exact stem", "-w", "1.0 0.6"]
        command = ["java", "-jar", str(jar), *map(str, files), *options]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    published = np.array(re.findall(r"Segment \d+ score:\s+([\d.eE-]+)", printed), float)
    ours = np.array([meteor(*map(meteor_sentence, pair)) for pair in pairs])
    difference = np.abs(ours - published)
    report.add(
        "METEOR 1.5, exact and stem: mean difference",
        float(difference.mean()),
        at_most=3e-4,
        reference=f"{(difference < TOLERANCE).mean():.1%} of {len(pairs):,} pairs are equal",
    )


if __name__ == "__main__":
    main()
