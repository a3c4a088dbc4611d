"""Every registered corpus reader keeps the same promises."""

import inspect
from pathlib import Path

import pytest

from bifocal import registry

PACKAGE = "bifocal.datasets.corpora"
READERS_OF_FILES = [
    name
    for name in registry.registered(PACKAGE)
    if "root" in inspect.signature(registry.get(PACKAGE, name)).parameters
]
UNUSED = Path("unused")


@pytest.mark.parametrize("name", registry.registered(PACKAGE))
def test_corpus_builds_from_its_name_and_has_read(name):
    assert callable(registry.build(PACKAGE, name, seed=3).read)


@pytest.mark.parametrize("name", READERS_OF_FILES)
def test_corpus_of_files_names_its_files_without_a_root(name):
    with pytest.raises(ValueError, match=f"{name} needs root: the folder with "):
        registry.build(PACKAGE, name).read(UNUSED)


@pytest.mark.parametrize("name", READERS_OF_FILES)
def test_corpus_of_files_rejects_a_missing_root(name):
    with pytest.raises(ValueError, match=r"/no/such/folder'? is not a "):
        registry.build(PACKAGE, {"name": name, "root": "/no/such/folder"}).read(UNUSED)


@pytest.mark.parametrize("name", READERS_OF_FILES)
def test_corpus_of_files_names_the_missing_file(name, tmp_path):
    with pytest.raises(ValueError, match=str(tmp_path)):
        registry.build(PACKAGE, {"name": name, "root": str(tmp_path)}).read(UNUSED)


def test_only_drawn_corpora_and_readers_of_other_corpora_have_no_root():
    assert set(registry.registered(PACKAGE)) - set(READERS_OF_FILES) == {
        "Combined",
        "Scenes",
        "Subset",
    }
