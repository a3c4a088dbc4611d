"""Identity of a component: the files that it imports, hashed by meaning, and the versions of the
packages."""

import importlib.metadata
import json
import re
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from bifocal.durable import json_digest
from bifocal.durable.sources import Closure, SourceFiles
from runtime.spec import Component

ROOT = Path(__file__).parent.parent
PYTHON = "python"
DISTRIBUTIONS = {
    "PIL": ("pillow",),
    "faiss": ("faiss-cpu",),
    "huggingface_hub": ("huggingface-hub", "huggingface_hub"),
    "onnxruntime": ("onnxruntime", "onnxruntime-gpu"),
    "ruamel": ("ruamel.yaml", "ruamel-yaml"),
    "sklearn": ("scikit-learn",),
    "stop_words": ("stop-words", "stop_words"),
}
"""Distributions that have a package, where the names differ."""
WITHOUT_EFFECT = {
    "click",
    "cv2",
    "kubeflow",
    "kubernetes",
    "open_clip",
    "pillow_heif",
    "pydantic",
    "triton",
    "urllib3",
    "yaml",
}
"""Packages that are not in keys: packages that parse and submit; triton, which torch pins; OpenCV
(for ``Proposals``), open_clip and pillow-heif, which the images do not have, so that a cluster and
a laptop share a cache."""
INFRASTRUCTURE = (
    "runtime.artifacts",
    "runtime.identity",
    "runtime.mlflow",
    "runtime.s3",
    "runtime.spec",
    "bifocal.durable.sources",
    "bifocal.progress",
)
"""Modules that declare, store, track and print: no output of a stage depends on them, so the
closure ends here."""


@cache
def sources(component: Component) -> Closure:
    """Return the files and packages of the component's modules and of all their imports."""
    return _files().closure(component.entry_modules)


def source_hash(component: Component) -> str:
    """SHA-256 over the meaning of the component's source files, committed or not: without
    docstrings and comments."""
    return json_digest([dict(sources(component).files)])


def packages(component: Component) -> tuple[str, ...]:
    """Import names of the packages whose versions can change the component's outputs."""
    return tuple(name for name in sources(component).packages if name not in WITHOUT_EFFECT)


def installed_versions(names: Iterable[str]) -> dict[str, str]:
    """Return versions of packages ("none" if missing) and Python, without local part and patch
    level of Python, so that machines with different cards share the cache.
    """
    versions = {name: _installed_version(name) for name in names}
    return {PYTHON: f"{sys.version_info.major}.{sys.version_info.minor}", **versions}


def _installed_version(name: str) -> str:
    for distribution in DISTRIBUTIONS.get(name, (name,)):
        try:
            return importlib.metadata.version(distribution).partition("+")[0]
        except importlib.metadata.PackageNotFoundError:
            continue
    return "none"


def pinned_versions(names: Iterable[str], image: str, root: Path = ROOT) -> dict[str, str]:
    """Return the version of each package that ``requirements/<image>.txt`` pins for the image,
    "none" without one."""
    text = (root / "requirements" / f"{image}.txt").read_text()
    pins = dict(re.findall(r"^([\w.-]+)==([^\s;+]+)", text, flags=re.MULTILINE))
    return {
        name: next(
            (pins[entry] for entry in DISTRIBUTIONS.get(name, (name,)) if entry in pins), "none"
        )
        for name in names
    }


def user_modules(values: Any) -> dict[str, Path]:
    """Return the files of the imported modules that parts of ``values`` are named after, such as
    my_losses:MyLoss."""
    names = sorted(set(re.findall(r'"([\w.]+):\w+"', json.dumps(values, default=str))))
    files = {name: str(getattr(sys.modules.get(name), "__file__", "")) for name in names}
    return {name: Path(file) for name, file in files.items() if file.endswith(".py")}


def image_key(component: Component) -> str:
    """Key of a component in its image: sources and pinned versions, the same on every machine with
    these files."""
    pins = pinned_versions(packages(component), component.image)
    return json_digest([source_hash(component), pins])


@cache
def _files() -> SourceFiles:
    return SourceFiles(ROOT, INFRASTRUCTURE)
