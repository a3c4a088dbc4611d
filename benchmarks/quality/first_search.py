"""How many of ten queries find what they name in 500 photographs, without training?

    python -m benchmarks run quality.first_search --data FLICKR8K [--encoder small]

Indexes 500 photographs of Flickr8k's list of train (seed 0) by "bifocal index" without captions,
and searches by ten queries, which were chosen before the first run. A first image is right if one
of its captions contains a word for the object of the query. Chance is the mean share of photographs
that would be right.
"""

import argparse
import re
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import bifocal
from benchmarks.common import Report, wall_seconds
from benchmarks.speed.first_use import bifocal as command
from benchmarks.speed.first_use import write_photographs

PHOTOGRAPHS, SECONDS = 500, 60
QUERIES = {
    "a dog runs through the snow": "snow snowy",
    "a man on a bicycle": "bike bicycle biker cyclist bicyclist bmx",
    "children playing in water": "water pool ocean lake river sprinkler",
    "a football player": "football",
    "a girl in a pink dress": "pink",
    "a man climbing a rock": "climb climbs climbing climber rock cliff",
    "a skateboarder doing a trick": "skateboard skateboarder skateboarding skateboards skater",
    "two dogs fighting": "dogs",
    "a motorcycle race": "motorcycle motorbike dirtbike motorcyclist motocross",
    "people on a beach": "beach sand shore",
}
"""Words of the object by query."""


def names_object(captions: pd.Series, words: str) -> "pd.Series[bool]":
    """Return, for each caption, whether it contains one of the words."""
    return captions.str.contains(rf"\b(?:{'|'.join(words.split())})\b", flags=re.IGNORECASE)


def main() -> None:
    """Report the share of right first images, chance, and the time of the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of Flickr8k")
    parser.add_argument("--encoder", default="small")
    options = parser.parse_args()
    report = Report("quality.first_search")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_photographs(options.data, folder / "photos", PHOTOGRAPHS)
        captions = pd.read_csv(folder / "photos" / "captions.csv")
        (folder / "photos" / "captions.csv").unlink()
        seconds = wall_seconds(
            lambda: command(folder, "index", "photos", "--encoder", options.encoder)
        )
        model = bifocal.load(folder / "runs" / "photos-index")
        firsts = {query: model.search(query, k=1)[0].name for query in QUERIES}
    named = {
        query: set(captions["image"][names_object(captions["caption"], words)])
        for query, words in QUERIES.items()
    }
    right = [firsts[query] in images for query, images in named.items()]
    chance = [len(images) / PHOTOGRAPHS for images in named.values()]
    wrong = ", ".join(query for query, found in zip(QUERIES, right, strict=True) if not found)
    report.add(
        f"{options.encoder}: right first images of ten queries",
        float(np.mean(right)),
        reference=f"chance {np.mean(chance):.3f}; wrong: {wrong or 'none'}",
    )
    report.add(
        f"{options.encoder}: bifocal index, {PHOTOGRAPHS} photographs",
        seconds,
        "s",
        at_most=SECONDS,
    )
    report.write()


if __name__ == "__main__":
    main()
