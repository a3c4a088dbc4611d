"""Which code of ``bifocal.metrics`` gave the values of a benchmark: a hash that is stored with each
result."""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from bifocal.durable.sources import read_module

ROOT = Path(__file__).parents[1]
WALKED = ("benchmarks", "bifocal.evaluation", "bifocal.metrics")
HASHED = "bifocal/metrics/"
Read = Callable[[str], bytes | None]


def measure_hash(benchmark: str, read: Read | None = None) -> str:
    """Return the hash of the metrics that a benchmark imports, also through evaluators; "" if it
    imports none.

    The hash is the meaning of their syntax trees, so comments and docstrings do not change it.

    Args:
        benchmark: name below ``benchmarks``, such as ``quality.leaderboard``.
        read: returns a source file by its path in the repository, or None; by default the working
            tree.
    """
    read = read or _from_tree
    waiting, seen, hashes = (
        [f"benchmarks/{benchmark.replace('.', '/')}.py"],
        set[str](),
        dict[str, str](),
    )
    while waiting:
        file = waiting.pop()
        source = None if file in seen else read(file)
        if source is None:
            continue
        seen.add(file)
        module = read_module(source)
        if file.startswith(HASHED):
            hashes[file] = module.hash
        names = [name for name in module.imports if name.startswith(WALKED)]
        waiting += [found for name in names for found in [_file_of(name, read)] if found]
    digests = "".join(hashes[file] for file in sorted(hashes))
    return sha256(digests.encode()).hexdigest()[:12] if hashes else ""


def _file_of(name: str, read: Read) -> str | None:
    """Return the file that defines an imported name, following the imports of a package's
    ``__init__.py``."""
    parent, _, attribute = name.rpartition(".")
    for module in (name, parent):
        file = f"{module.replace('.', '/')}.py"
        if read(file) is not None:
            return file
    package = read(f"{parent.replace('.', '/')}/__init__.py") if parent else None
    exported = read_module(package).imports if package is not None else ()
    found = next(
        (one for one in sorted(exported) if one.rpartition(".")[2] == attribute and one != name),
        None,
    )
    return _file_of(found, read) if found else None


def _from_tree(path: str) -> bytes | None:
    file = ROOT / path
    return file.read_bytes() if file.is_file() else None
