"""Run the marked code blocks of each page, in their order, for ``make docs-test``."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.blocks import Block, blocks, pages
from tests.docs.worlds import WORLDS, run

pytestmark = pytest.mark.timeout(3600)  # a page has several trainings
MARKED = {page: [block for block in blocks(page) if block.mark] for page in pages()}


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """Return the folder of a world for a page; the world "run" is one folder for all pages, because
    it takes long."""
    folders: dict[tuple[str, str], Path] = {}

    def folder(name: str, page: str) -> Path:
        key = (name, "" if name == "run" else page)
        if key not in folders:
            folders[key] = tmp_path_factory.mktemp(name)
            WORLDS[name](folders[key])
        return folders[key]

    return folder


@pytest.mark.parametrize("page", [page for page, marked in MARKED.items() if marked])
def test_marked_blocks_run(page: str, world: Callable[[str, str], Path]) -> None:
    files: list[Block] = []
    for block in MARKED[page]:
        if block.mark == "file":
            files.append(block)
            continue
        folder = world(block.name, page)
        for file in files:
            (folder / file.name).write_text(file.text)
        run(block.language, block.text, folder)


def test_make_repro_on_small_parameters(world: Callable[[str, str], Path]) -> None:
    """The commands of ``make repro`` in a clone: render, repro, register, metrics."""
    run(
        "bash",
        "make --old-file .venv/ready repro RECIPE=tests/small.yaml\n",
        world("clone", "make repro"),
    )
