"""Sizes of a corpus: counted where its files are on this machine, else from the table of published corpora."""

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from bifocal.datasets.base import SPLITS, CorpusReader
from bifocal.registry import all_arguments, build
from components.prepare_dataset.spec import COMPONENT
from runtime.s3.user_files import download_user_files

CORPORA = "bifocal.datasets.corpora"
DRAWN = ("Scenes", "TwinScenes")


@dataclass(frozen=True)
class CorpusSize:
    """Images and captions of a corpus; ``stand_in`` draws scenes of about this size if the corpus is not here."""

    images: int
    captions: int
    stand_in: Mapping[str, Any] | None = None


@cache
def published() -> dict[str, Any]:
    """Return the tables of published sizes, files and stand-ins."""
    tables: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("published.yaml").read_text(encoding="utf-8"))
    return tables


def corpus_size(values: Mapping[str, Any]) -> CorpusSize:
    """Return the size of the corpus that ``prepare_dataset`` reads."""
    ref = values["prepare_dataset"]["corpus"]
    if ref["name"] in DRAWN:
        images = sum(all_arguments(CORPORA, ref)[split] for split in SPLITS)
        return CorpusSize(images, 5 * images)
    if all(_is_here(part) for part in _parts(ref)):
        local = download_user_files(values, COMPONENT)["prepare_dataset"]["corpus"]
        reader: CorpusReader = build(CORPORA, local, seed=values["seed"])
        with tempfile.TemporaryDirectory() as folder:
            corpus = reader.read(Path(folder))
        return CorpusSize(len(corpus.images), len(corpus.captions))
    return _published_size(ref)


def files_to_fetch(values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the published files of parts whose paths are not on this machine."""
    refs = [*_parts(values["prepare_dataset"]["corpus"])]
    refs += [values["extract_features"]["extractor"], values["vectorize_captions"]["vectorizer"]]
    for ref in refs:
        arguments = {} if isinstance(ref, str) else ref
        paths = [arguments[name] for name in ("root", "path") if arguments.get(name)]
        if paths and not any(Path(path).exists() for path in paths):
            for file in published()["files"].get(arguments["name"], ()):
                yield {"folder": paths[0], **file}


def _published_size(ref: Mapping[str, Any]) -> CorpusSize:
    if ref["name"] == "Combined":
        sizes = [_published_size({**ref[split], "only": split}) for split in SPLITS if ref.get(split)]
        side = max(size.stand_in["size"] for size in sizes if size.stand_in)
        return _with_stand_in(sum(size.images for size in sizes), sum(size.captions for size in sizes), side)
    only, ref = ref.get("only"), {name: value for name, value in ref.items() if name != "only"}
    arguments = all_arguments(CORPORA, ref)
    for entry in published()["corpora"]:
        if entry["corpus"] == ref["name"] and all(
            _last_name(arguments[name]) == value for name, value in entry.get("when", {}).items()
        ):
            images = arguments[entry["images"]] if isinstance(entry["images"], str) else entry["images"]
            count = images.get(only, 0) if only else sum(images.values())
            return _with_stand_in(count, round(count * entry["captions"]), entry["side"])
    raise ValueError(
        f"{ref['name']}: root {ref.get('root')!r} is not a folder of this machine, and the sizes of the corpus are not "
        "in pipelines/plan/published.yaml: name the folder with --set prepare_dataset.corpus.root=..."
    )


def _with_stand_in(images: int, captions: int, side: int) -> CorpusSize:
    return CorpusSize(images, captions, {"name": "Scenes", "size": min(side, 640), "val": 0, "test": 0})


def _parts(ref: Any) -> Iterator[Any]:
    """Yield a reference to a corpus and the references among its arguments."""
    yield ref
    for value in ref.values() if isinstance(ref, Mapping) else ():
        if isinstance(value, Mapping) and "name" in value:
            yield from _parts(value)


def _is_here(ref: Any) -> bool:
    """Whether the folder of a corpus is on this machine or on S3; a reader that combines corpora has none."""
    root = ref.get("root", "") if isinstance(ref, Mapping) else None
    return root == "" or (root is not None and (str(root).startswith("s3://") or Path(root).is_dir()))


def _last_name(value: Any) -> Any:
    return value.rstrip("/").rpartition("/")[2] if isinstance(value, str) else value
