"""How long does one sentence from the shell take, beside sentence-transformers?

    make peers ONLY=start

CPU time of two commands, with all of their imports: 'bifocal search' in the demo with the encoders
of the extra small, and a script that loads the same sentence encoder in sentence-transformers and
encodes the sentence, without a search.
"""

import resource
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from tempfile import TemporaryDirectory

from benchmarks.common import Report
from benchmarks.peers.compare import compare, write
from bifocal.backbones.networks import small_networks

SCRIPT = (
    "from sentence_transformers import SentenceTransformer; SentenceTransformer(%r, "
    "device='cpu').encode('a dog')"
)


def children_seconds(function: Callable[[], object]) -> float:
    """Return the CPU time of the processes that a function starts and waits for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    function()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Compare the commands."""
    networks, report = small_networks(offline=True), Report("peers.start")
    with TemporaryDirectory() as folder:
        run = partial(
            subprocess.run,
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        bifocal = [sys.executable, "-m", "bifocal"]
        run([*bifocal, "demo"])
        run([*bifocal, "index", "bifocal-demo/images", "--encoder", "small", "--folder", "index"])
        ours = partial(run, [*bifocal, "search", "a dog", "--run", "index"])
        theirs = partial(run, [sys.executable, "-c", SCRIPT % str(networks.sentences)])
        compare(
            report,
            "a sentence from the shell",
            "sentence-transformers",
            ours,
            theirs,
            clock=children_seconds,
        )
    write(report)


if __name__ == "__main__":
    main()
