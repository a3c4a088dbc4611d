"""How often are answers called found, perhaps and nothing right?

    python -m benchmarks run quality.certainty [--data ../shared/data] [--run RUN]

Without a run: the encoders small on 800 photographs of Flickr8k's list of dev, calibrated by names.
With the run of a ``bifocal train``: the photographs of its split test, which neither the training
nor the calibration (on val) has seen. A first result is right if one of two rules finds it in its
captions: all words of the query, by their stems and without function words, or a caption as similar
as two captions of one image are (``relevant_rows``). So a synonym is missed.

The queries are single words and pairs of words that the phrases of the captions have, each phrase
once, captions of 3 and 4 and of 5 to 7 words that count, random letters, sentences in other
languages, and things that no caption names. For the last three, nothing is the right answer.
"""

import argparse
import random
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from snowballstemmer import stemmer

from benchmarks.common import Report
from benchmarks.quality.relevance import embed
from bifocal.datasets import read_dataset
from bifocal.metrics.bootstrap import mean_interval
from bifocal.onnx.encoders import Embedder
from bifocal.onnx.files import model_hash
from bifocal.onnx.pointing.phrases import split_phrases
from bifocal.search import Search, SearchIndex
from bifocal.search.calibration.caption_relevance import relevant_rows
from bifocal.search.calibration.fitting import calibrate_by_names
from pipelines.app.encoders import encoder_folder
from pipelines.app.index_folder import name_vectors

SEED, PHOTOGRAPHS, QUERIES = 0, 800, 200
FUNCTION = """a an the is are was were be being of in on at to and with by for from it its his her
their he she they them as that this there which who while into up down over through out off near
next other another one two three four some has have having"""
LETTERS, CONSONANTS, VOWELS = "abcdefghijklmnopqrstuvwxyz", "bcdfghjklmnpqrstvwxz", "aeiou"
FOREIGN = """ein Hund im Schnee;eine Frau am Strand;zwei Kinder spielen;ein Mann auf einem Fahrrad
ein rotes Auto;ein Junge springt ins Wasser;ein Pferd auf der Wiese;Leute auf der Straße
un chien dans la neige;une femme sur la plage;deux enfants jouent;un homme à vélo;une voiture rouge
un garçon saute dans l'eau;un cheval dans le pré;des gens dans la rue;un perro en la nieve
una mujer en la playa;dos niños juegan;un hombre en bicicleta;un coche rojo;un niño salta al agua
un caballo en el prado;gente en la calle;un cane nella neve;una donna sulla spiaggia
due bambini giocano;una macchina rossa;雪の中の犬;海辺の女性;赤い車;自転車に乗る男"""
ABSENT = """a zebra;an elephant;a computer keyboard;a submarine;the stock market;a microwave oven
a violin concerto;quarterly revenue;a giraffe;an octopus;a wind turbine;a toaster;democracy
an x-ray of a hand;a spreadsheet;a stained glass window;a lighthouse;a whale;a circuit board
a syringe;a steam locomotive;a chess board;a satellite dish;a penguin;a hedgehog;a tractor"""


def content(text: str, stem: Callable[[str], str]) -> frozenset[str]:
    """Return the stems of the words of a text, without function words."""
    words = re.findall(r"[^\W\d_]+", text.lower())
    return frozenset(stem(word) for word in words if word not in FUNCTION.split())


def random_letters(rng: random.Random) -> str:
    """Return one to three words of random letters, or of random syllables."""

    def word() -> str:
        if rng.random() < 0.5:
            return "".join(rng.choices(LETTERS, k=rng.randint(4, 9)))
        return "".join(
            rng.choice(CONSONANTS) + rng.choice(VOWELS) for _ in range(rng.randint(2, 4))
        )

    return " ".join(word() for _ in range(rng.randint(1, 3)))


def draw_queries(
    captions: Sequence[Sequence[str]], stem: Callable[[str], str]
) -> dict[str, list[tuple[str, int]]]:
    """Return the queries of each class with the row of an image that they describe; -1 for none."""
    rng = random.Random(SEED)
    texts = [(text, row) for row, of_image in enumerate(captions) for text in of_image]
    phrases = {
        phrase.text.lower(): row for text, row in texts for phrase in split_phrases(text.lower())
    }

    def drawn(found: Sequence[tuple[str, int]], low: int, high: int) -> list[tuple[str, int]]:
        chosen = [pair for pair in found if low <= len(content(pair[0], stem)) <= high]
        return rng.sample(chosen, min(QUERIES, len(chosen)))

    written = {"other languages": FOREIGN, "absent things": ABSENT}
    return {
        "single words": drawn(sorted(phrases.items()), 1, 1),
        "pairs of words": drawn(sorted(phrases.items()), 2, 2),
        "captions of 3 and 4 words": drawn(texts, 3, 4),
        "captions of 5 to 7 words": drawn(texts, 5, 7),
        "random letters": [(random_letters(rng), -1) for _ in range(QUERIES)],
        **{
            name: [(text, -1) for text in re.split(r"[;\n]", lines)]
            for name, lines in written.items()
        },
    }


def measure(report: Report, name: str, index: SearchIndex, embedder: Embedder) -> None:
    """Ask all classes, and report the share of each answer and how many of them are right."""
    stem = stemmer("english").stemWord
    captions = index.items["captions"].to_pylist()
    said = [frozenset[str]().union(*(content(text, stem) for text in of)) for of in captions]
    answers: dict[str, list[tuple[str, bool]]] = {}
    for kind, queries in draw_queries(captions, stem).items():
        texts, rows = [text for text, _ in queries], [row for _, row in queries]
        is_caption = kind.startswith("captions")
        similar: Sequence[Iterable[int]] = [()] * len(texts)
        if is_caption:
            similar = [of.tolist() for of in relevant_rows(index.items, texts, rows)]
        results = Search(index).batch(embed(embedder, texts), 1, sentences=True)
        answers[kind] = [
            (
                str(found[0].relevance),
                row >= 0
                and (content(text, stem) <= said[found[0].row] or found[0].row in set(near)),
            )
            for (text, row), found, near in zip(queries, results, similar, strict=True)
        ]
        add(report, f"{name}: {kind}", answers[kind], asks_nothing=rows[0] < 0)
    everything = [
        answer for kind in answers if kind.startswith("captions") for answer in answers[kind]
    ]
    right = np.array([is_right for word, is_right in everything if word == "found"], float)
    if len(right):
        low, high = mean_interval(
            right, list(map(str, range(len(right)))), resamples=1000, seed=SEED
        )
        report.add(
            f"{name}: captions that are found, right",
            float(right.mean()),
            at_least=0.8,
            reference=f"95 %: {low:.2f} to {high:.2f}; {len(right)} of {len(everything)}",
        )


def add(report: Report, name: str, answers: list[tuple[str, bool]], *, asks_nothing: bool) -> None:
    """Report one class of queries."""
    shares = {
        word: [right for said, right in answers if said == word]
        for word in ("found", "perhaps", "nothing")
    }
    counts = ", ".join(f"{word} {len(right)}" for word, right in shares.items())
    if asks_nothing:
        bar = 0.9 if name.endswith("random letters") else None
        report.add(
            f"{name}, nothing",
            len(shares["nothing"]) / len(answers),
            at_least=bar,
            reference=counts,
        )
        return
    for word, right in shares.items():
        if right:
            report.add(
                f"{name}, {word}: right first results",
                float(np.mean(right)),
                reference=f"of {len(right)} of {len(answers)}",
            )


def untrained(folder: Path, data: Path) -> tuple[SearchIndex, Embedder]:
    """Return an index of photographs of the list of dev by the encoders small."""
    names = (folder / "Flickr_8k.devImages.txt").read_text().split()
    names = sorted(random.Random(SEED).sample(names, PHOTOGRAPHS))
    captions: dict[str, list[str]] = {name: [] for name in names}
    for line in (folder / "Flickr8k.token.txt").read_text().splitlines():
        name, _, text = line.partition("\t")
        if (name := name.partition("#")[0]) in captions:
            captions[name].append(text)
    encoders = encoder_folder("small", data / "weights")
    embedder = Embedder(encoders)
    files = [(folder / "images" / name).read_bytes() for name in names]
    vectors = np.concatenate(
        [embedder.embed_images(files[row : row + 8]) for row in range(0, len(files), 8)]
    )
    index = SearchIndex(
        pa.table({"item_id": names, "captions": list(captions.values())}),
        vectors.astype(np.float16),
    )
    index.calibration = calibrate_by_names(index, *name_vectors(encoders, model_hash(encoders)))
    return index, embedder


def trained(artifacts: Path) -> tuple[SearchIndex, Embedder]:
    """Return the index of a run without the images of train and val."""
    whole = SearchIndex.open(artifacts / "index")
    kept = set(read_dataset(artifacts / "dataset").split("test").images["image_id"].astype(str))
    rows = np.array([row for row, item_id in enumerate(whole.ids) if item_id in kept])
    bias = None if whole.bias is None else whole.bias[rows]
    index = SearchIndex(whole.items.take(rows), np.asarray(whole.vectors[rows]), bias)
    index.calibration = whole.calibration
    return index, Embedder(artifacts / "onnx")


def main() -> None:
    """Ask without training, or a run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--run", type=Path, help="folder of a run with captions")
    options = parser.parse_args()
    report = Report("quality.certainty")
    if options.run is None:
        measure(report, "without training", *untrained(options.data / "flickr8k", options.data))
    else:
        measure(report, "trained", *trained(options.run / "artifacts"))
    report.write()


if __name__ == "__main__":
    main()
