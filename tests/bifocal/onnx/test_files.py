"""Damaged files of a collection, an index and an exported model: one error that names the file."""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.processors import TemplateProcessing

from bifocal.export.towers import export_towers
from bifocal.onnx.encoders import Embedder
from bifocal.onnx.files import REPORTS, DamagedFileError, read_whole
from bifocal.onnx.pointing import open_pointer
from bifocal.onnx.text.tokenizer import SubwordTokenizer
from bifocal.search.calibration.calibration import Calibration
from bifocal.search.collection.collection import Collection
from bifocal.search.index.build import IndexSettings, build_index, index_of_collection
from bifocal.search.index.index import SearchIndex
from bifocal.search.trained_model import COLLECTION, INDEX, ONNX, TrainedModel
from tests.bifocal.contrastive import write_clip
from tests.bifocal.pointing_heads import PADDED, write_head

Kept = tuple[str, Path, dict[Path, Any]]
REMOVED = object()
BUFFER = BytesIO()
Image.new("RGB", (96, 64), "red").save(BUFFER, "PNG")
PNG = BUFFER.getvalue()
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "other": lambda content: random.Random(0).randbytes(len(content)),
    "changed": lambda content: content[:8] + bytes([content[8] ^ 0xFF]) + content[9:],
    "renamed": lambda content: content.replace(b'"', b'"x', 1),
}


@pytest.fixture(scope="module")
def run(demo: TrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo with biases, a calibration and an index of faiss."""
    run = tmp_path_factory.mktemp("damaged") / "run"
    shutil.copytree(demo.directory / "artifacts", run / "artifacts")
    shutil.rmtree(run / INDEX)
    (run / INDEX).mkdir()
    exact = index_of_collection(Collection.open(run / COLLECTION), None)
    built = build_index(
        exact, IndexSettings(factory="IVF4,Flat"), exact.vectors[:8].astype(np.float32)
    )
    built.bias = np.zeros(len(built), np.float32)
    built.calibration = Calibration(
        -4.0,
        10.0,
        5.0,
        0.5,
        0.0,
        0.0,
        1.0,
        100,
        names=np.ones((4, exact.vectors.shape[1]), np.float32),
    )
    built.write(run / INDEX)
    return run


def open_collection(folder: Path) -> None:
    assert len(Collection.open(folder).vectors[:])


@pytest.mark.parametrize(
    ("part", "read"),
    [(COLLECTION, open_collection), (INDEX, SearchIndex.open), (ONNX, Embedder)],
    ids=lambda part: "",
)
def test_a_damaged_file_is_named_by_one_error(
    run: Path, part: Path, read: Callable[[Path], object]
) -> None:
    files = [
        file for file in (run / part).rglob("*") if file.is_file() and file.parent.name != "images"
    ]
    found = set[tuple[str, str]]()
    for file in files:
        whole = file.read_bytes()
        for name, damage in DAMAGES.items():
            replace(file, damage(whole))
            try:
                read(run / part)
            except (ValueError, OSError) as error:
                message = str(error)
                found.add((file.name, name))
            else:
                # bits of a vector or of weights have no sum here: 'serve' compares the manifest's
                message = file.name
            assert file.name in message
        replace(file, whole)
    read(run / part)
    expected = {file.name for file in files} - {
        "rejected.parquet",
        "manifest.json",
        "backbone.onnx",
        "localizer.json",
    }
    assert {name for name, damage in found if damage == "empty"} >= expected
    assert {name for name, damage in found if damage == "cut"} >= expected


def replace(file: Path, content: bytes) -> None:
    """Replace a file by a rename: others may map it."""
    aside = file.with_name("aside")
    aside.write_bytes(content)
    aside.replace(file)


def clip_towers(folder: Path) -> Path:
    export_towers(write_clip(folder / "weights"), folder / "onnx")
    return folder / "onnx"


def word_head(folder: Path) -> Path:
    folder.mkdir()
    write_head(folder, PADDED)
    (folder / "onnx").mkdir()
    return (folder / "head").rename(folder / "onnx" / "pointing").parent


def use_run(folder: Path) -> None:
    model = TrainedModel(folder)
    assert len(model.search("a red star"))
    model.collection.regions(0)
    assert model.where(Image.new("RGB", (96, 64), "red"), "a red star").heatmap.size


def use_towers(folder: Path) -> None:
    embedder = Embedder(folder)
    embedder.embed_sentences(["a dog"])
    embedder.embed_images([PNG])


def use_head(folder: Path) -> None:
    pointer: Any = open_pointer(folder, None)  # type: ignore[arg-type]
    assert pointer.locate(PNG, ["a red fox"], 24)


USES: dict[str, Callable[[Path], object]] = {
    "run": use_run,
    "towers": use_towers,
    "head": use_head,
}


@pytest.fixture(
    scope="module",
    params=["run", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("towers", "head"))],
)
def kept(
    request: pytest.FixtureRequest,
    run: Path,
    graph_cache: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Kept:
    """A kind of folder, the folder, and its files of JSON with their contents."""
    kind, folder = request.param, tmp_path_factory.mktemp("forms")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(graph_cache))
        makers = {"run": lambda _: run, "towers": clip_towers, "head": word_head}
        place = makers[kind](folder / "made")
    found = [
        file
        for file in sorted(place.rglob("*.json"))
        if file.name not in ("manifest.json", "tokenizer.json", *REPORTS)
    ]
    USES[kind](place)
    return kind, place, {file: json.loads(file.read_text()) for file in found}


VALUES = st.sampled_from([None, True, 7, 0.5, "text", [], ["a"], {}, {"a": 1}])


def places(content: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the places of the values in a JSON value, of a list only the first one; another number
    of tokens is no other form."""
    if place[-1:] == ("context_length",):
        return
    if not isinstance(content, dict) or "context_length" not in content:
        yield place
    keys = content if isinstance(content, dict) else [0] if isinstance(content, list) else []
    for key in keys if content else []:
        yield from places(content[key], (*place, key))


def changed(content: Any, place: tuple[Any, ...], value: Any) -> Any:
    """Return a JSON value with another one at a place, without it for ``REMOVED``."""
    if not place:
        return value
    copy = content.copy()
    copy[place[0]] = changed(content[place[0]], place[1:], value)
    if copy[place[0]] is REMOVED:
        del copy[place[0]]
    return copy


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_another_form_of_json_is_named_by_one_error(kept: Kept, data: st.DataObject) -> None:
    kind, folder, files = kept
    file = data.draw(st.sampled_from(list(files)))
    place = data.draw(st.sampled_from([(), *places(files[file])]))
    value = data.draw(VALUES if not place else VALUES | st.just(REMOVED))
    content = changed(files[file], place, value)
    replace(file, json.dumps(content).encode())
    message = file.name
    try:
        USES[kind](folder)
    except (ValueError, OSError) as error:
        message = str(error)
    finally:
        replace(file, json.dumps(files[file]).encode())
    assert file.name in message or str(folder) in message


def test_a_tokenizer_that_panics_is_one_error(tmp_path: Path) -> None:
    tokenizer = Tokenizer(WordLevel({"a": 0, "[UNK]": 1}, "[UNK]"))
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 0)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert read_whole(tmp_path / "tokenizer.json", SubwordTokenizer.read).unknown == 1
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["post_processor"]["special_tokens"] = {}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(DamagedFileError, match=r"tokenizer.json is damaged \(no entry"):
        read_whole(tmp_path / "tokenizer.json", SubwordTokenizer.read)
