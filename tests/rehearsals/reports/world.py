"""Cases of reported faults, and the folder in which a case runs real commands of this checkout."""

import contextlib
import io
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow.parquet as pq
import yaml
from hypothesis import Phase, given, settings
from hypothesis.strategies import SearchStrategy
from PIL import Image

from pipelines.app.demo import unpack
from tests.pipelines.app.conftest import RECIPE, write_photos

WORDS = ("dog", "cat", "boat", "house", "tree", "car", "horse", "bird", "train", "cup")
COLORS = ("red", "blue", "green", "white", "black", "yellow", "gray", "brown", "pink", "old")
ROWS = 12
"""Images of a folder with a caption table."""
KEPT = 160
"""Characters of a value in the table."""


class Shared:
    """Folders that are made once: the run of the demo, whose encoders index, a small training and
    an MLflow store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def demo(self) -> Path:
        """The run folder of 'bifocal demo'."""
        unpack(self.folder / "demo")
        return self.folder / "demo"

    @cached_property
    def store(self) -> Path:
        """The file of an MLflow store without runs."""
        from mlflow import MlflowClient  # takes seconds, and most cases do not need it

        with contextlib.redirect_stderr(io.StringIO()):
            MlflowClient(f"sqlite:///{self.folder}/empty.db").search_experiments()
        return self.folder / "empty.db"

    @cached_property
    def training(self) -> Path:
        """A folder with ``photos``, and the run ``runs/photos`` of 'bifocal train' on them."""
        world = World(self.folder / "training", self)
        write_photos(world.folder / "photos")
        output = world.train("photos")
        assert "images can be searched" in output, output
        return world.folder


@dataclass(frozen=True)
class World:
    """Empty folder of a case, which is the working directory of its commands."""

    folder: Path
    shared: Shared

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)

    def path(self, name: str) -> Path:
        """Return a path of the folder, with the folders above it."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def write(self, name: str, content: str | bytes) -> Path:
        """Write a file."""
        path = self.path(name)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def photos(self, name: str, count: int = ROWS, side: int = 96) -> Path:
        """Write JPEG files p00.jpg ... of different pixels; return their folder."""
        for number in range(count):
            self.write(f"{name}/p{number:02}.jpg", photo(number, side))
        return self.folder / name

    def table(
        self, name: str, columns: str = "image,caption", row: str = "{image},{caption}", **how: Any
    ) -> Path:
        """Write a table with a row for each of ``count`` photographs, by default captions.csv."""
        file, encoding, count = (
            how.get("file", "captions.csv"),
            how.get("encoding", "utf-8"),
            how.get("count", ROWS),
        )
        rows = [row.format(image=f"p{n:02}.jpg", caption=caption(n), n=n) for n in range(count)]
        return self.write(
            f"{name}/{file}",
            "\n".join([*([columns] if columns else []), *rows, ""]).encode(encoding),
        )

    def bifocal(self, *arguments: object, **variables: str) -> str:
        """Run the command ``bifocal``; return what it prints, with the code of its exit unless it
        is 0."""
        from pipelines.app import main

        return self.run(main, "bifocal", arguments, variables)

    def pipelines(self, *arguments: object, **variables: str) -> str:
        """Run ``python -m pipelines`` likewise, on an MLflow store of its own."""
        from pipelines.commands import main
        from runtime.process import run

        return self.run(
            lambda: run(main, "pipelines"), "pipelines", arguments, {**self.tracking(), **variables}
        )

    def stage(self, *arguments: object, **variables: str) -> str:
        """Run ``python -m components`` likewise."""
        from components.__main__ import main
        from runtime.process import run

        return self.run(
            lambda: run(main, "components"),
            "components",
            arguments,
            {**self.tracking(), **variables},
        )

    def tracking(self) -> dict[str, str]:
        """Return the variable that names an MLflow store of this folder."""
        if not (self.folder / "store.db").exists():
            shutil.copy(self.shared.store, self.folder / "store.db")
        return {"MLFLOW_TRACKING_URI": f"sqlite:///{self.folder}/store.db"}

    def run(
        self, main: Callable[[], object], name: str, arguments: Any, variables: Mapping[str, str]
    ) -> str:
        """Run a program in this process and folder."""
        output = io.TextIOWrapper(
            io.BytesIO(), encoding="utf-8", errors="backslashreplace", write_through=True
        )
        code: object = 0
        with (
            clean_environment({"COLUMNS": "10000", **variables}),
            contextlib.chdir(self.folder),
            mock.patch.object(sys, "argv", [name, *map(str, arguments)]),
            mock.patch("bifocal.backbones.packages.packaged_folder", return_value=None),
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(output),
        ):
            try:
                main()
            except SystemExit as exit_:
                code = exit_.code
        text = output.buffer.getvalue().decode().replace(str(self.folder), ".")  # type: ignore[attr-defined]
        return text + (f"\n[exit {code}]" if code else "")

    def index(self, name: str, *options: object, **variables: str) -> str:
        """Run 'bifocal index' by the encoders of the demo."""
        given = () if {"--run", "--encoder"} & set(options) else ("--run", self.shared.demo)
        return self.bifocal("index", name, *given, *options, **variables)

    def items(self, name: str, column: str) -> dict[str, Any]:
        """Return a column of the collection of an indexed folder, by image."""
        rows = pq.read_table(
            self.folder / f"runs/{name}-index/artifacts/collection/items.parquet"
        ).to_pylist()
        return {row["item_id"]: row.get(column) for row in rows}

    def indexed(self, name: str, column: str = "item_id") -> Any:
        """Index a folder; return a column of its collection by image, or the sorted names."""
        output = self.index(name)
        assert "can be searched" in output, output
        found = self.items(name, column)
        return sorted(found) if column == "item_id" else found

    def captions(self, name: str) -> dict[str, list[str]]:
        """Return the captions of an indexed folder, by image."""
        return {image: texts for image, texts in self.items(name, "captions").items() if texts}

    def search(self, name: str, *options: object) -> str:
        """Search an indexed folder."""
        return self.bifocal("search", "a dog", "-k", 100, "--run", f"runs/{name}-index", *options)

    def train(self, name: str, *options: object, **variables: str) -> str:
        """Run 'bifocal train' with a small backbone of random weights."""
        recipe = self.write("recipe.yaml", RECIPE)
        return self.bifocal("train", name, "--recipe", recipe, *options, **variables)

    def prepare(
        self, reader: str, root: Path, **arguments: object
    ) -> dict[str, list[dict[str, Any]]]:
        """Run the stage prepare_dataset on a published corpus; return the rows of its tables."""
        section = {
            "corpus": {"name": reader, "root": str(root), **arguments},
            "max_rejected_fraction": 1.0,
        }
        recipe = self.write("corpus.yaml", yaml.safe_dump({"prepare_dataset": section}))
        output = self.stage(
            "prepare_dataset", "--recipe", recipe, "--params", CHECKOUT / "params.yaml"
        )
        folder = self.folder / "artifacts" / "dataset"
        assert folder.is_dir(), output
        return {path.stem: pq.read_table(path).to_pylist() for path in folder.glob("*.parquet")}


CHECKOUT = Path(__file__).parents[3]


@contextlib.contextmanager
def clean_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables, and remove those of a user's settings; MLflow forgets its experiment."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("BIFOCAL_", "MLFLOW_"))
    }
    with mock.patch.dict(os.environ, {**kept, "HF_HUB_OFFLINE": "1", **variables}, clear=True):
        if "mlflow.tracking.fluent" in sys.modules:
            sys.modules["mlflow.tracking.fluent"]._active_experiment_id = None  # type: ignore[attr-defined]
        yield


def photo(number: int, side: int = 96, **options: Any) -> bytes:
    """Return a JPEG of random patches, which no other number resembles."""
    patches = np.random.default_rng(number).integers(0, 256, (6, 8, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(patches).resize((side * 4 // 3, side), Image.Resampling.NEAREST).save(
        file, "JPEG", **options
    )
    return file.getvalue()


def caption(number: int) -> str:
    """Return a caption that names the number by its words."""
    chosen = random.Random(number)
    return (
        f"a {COLORS[number % 10]} {WORDS[number // 10 % 10]} beside a {chosen.choice(COLORS)} "
        f"{chosen.choice(WORDS)}"
    )


@dataclass(frozen=True)
class Case:
    """A reported fault: its kind, what was tried, the report, and the value or the part of a text
    that is right."""

    kind: str
    title: str
    source: str
    expected: Any
    see: Callable[[World], Any]

    def judge(self, world: World) -> tuple[str, bool]:
        """Run the case; return the value to show, and whether it is right."""
        seen = self.see(world)
        if not isinstance(seen, str):
            return shown(seen), seen == self.expected
        is_right = self.expected in seen and "Traceback (most recent" not in seen
        lines = [line for line in seen.splitlines() if line.strip()] or [""]
        return shown(
            next((line for line in lines if is_right and self.expected in line), lines[-1])
        ), is_right


CASES: list[Case] = []
NEIGHBORS = 3
"""Drawn inputs of a case beside the reported one."""


def drawn(strategy: SearchStrategy[Any]) -> list[Any]:
    """Return inputs that Hypothesis draws."""
    found = list[Any]()

    @settings(max_examples=NEIGHBORS, phases=[Phase.generate], database=None, deadline=None)
    @given(strategy)
    def draw(value: Any) -> None:
        found.append(value)

    draw()
    return found[:NEIGHBORS]


def reported(
    kind: str, title: str, source: str, expected: Any
) -> Callable[[Callable[[World], Any]], Any]:
    """Declare a case: a function that returns the value seen, or the text that a command prints."""

    def add(see: Callable[[World], Any]) -> Callable[[World], Any]:
        CASES.append(Case(kind, title, source, expected, see))
        return see

    return add


def shown(value: Any) -> str:
    """Return a value as a cell of the table."""
    text = value if isinstance(value, str) else repr(value)
    text = " ".join(text.split()).replace("|", "\\|")
    return text if len(text) <= KEPT else f"{text[: KEPT - 3]}..."
