"""Record the first minute: commands with their outputs and times, in docs/first_minute.md.

    python -m docs.make_first_minute [--weights FOLDER]

FOLDER has the networks of the encoder ``small``: with it, the page also shows photographs, those of
``docs.make_screenshots``, which need ``pip install scikit-image``.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.common import ROOT, measured
from docs.make_screenshots import write_photographs

PAGE = Path(__file__).with_name("first_minute.md")
DEMO = (
    'bifocal demo "a red heart on water"',
    'bifocal search "a green cross on sand" --run bifocal-demo -k 3',
    'bifocal where bifocal-demo/images/00213.jpg "red heart" --run bifocal-demo',
    "bifocal search nothere.jpg --run bifocal-demo",
    'bifocal serch "a red star"',
)
PHOTOGRAPHS = (
    "bifocal index photographs --weights weights",
    "bifocal index photographs",
    'bifocal search "a cat" -k 3',
    'bifocal where photographs/coffee.jpg "a cup"',
    'bifocal where photographs/coffee.jpg "a zebra"',
)
"""Commands that need the networks of the encoder ``small``."""
INTRODUCTION = """# The first minute

`python -m docs.make_first_minute` records this page: commands in an empty folder, with their outputs and the elapsed
time of each, on {cores} cores. {measured}
"""
ON_PHOTOGRAPHS = """
## Photographs

`photographs` has pictures that scikit-image ships as public domain or CC0, and `weights` EfficientNet-Lite2 and
all-MiniLM-L6-v2; the first call of `bifocal index` exports both to ONNX.
"""


def record(command: str, folder: Path) -> str:
    """Return a command with its output and its elapsed time, as a block of Markdown."""
    start = time.monotonic()
    process = subprocess.run(
        [sys.executable, "-m", *shlex.split(command)],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder / "cache"), "COLUMNS": "110"},
    )  # fmt: skip
    seconds = time.monotonic() - start
    lines = [re.sub(r".*\r", "", line).rstrip() for line in process.stdout.replace(f"{folder}/", "").splitlines()]
    output = "\n".join(line for line in lines if line)
    return f"\n```text\n$ {command}\n{output}\n```\n\n{seconds:.1f} s\n"


def main() -> None:
    """Run the commands, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, help="folder of the networks of the encoder small")
    weights = parser.parse_args().weights
    with TemporaryDirectory() as temporary:
        folder = Path(temporary).resolve()
        blocks = [
            INTRODUCTION.format(measured=measured(), cores=os.cpu_count()),
            *(record(command, folder) for command in DEMO),
        ]
        if weights is not None:
            write_photographs(folder / "photographs")
            (folder / "weights").symlink_to(weights.resolve(), target_is_directory=True)
            blocks += [ON_PHOTOGRAPHS, *(record(command, folder) for command in PHOTOGRAPHS)]
    PAGE.write_text("".join(blocks), "utf-8")


if __name__ == "__main__":
    main()
