"""Names, definitions and rows of a classifier in one file."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from timm.data import ImageNetInfo

from bifocal.backbones.classes import WORN, Classes, imagenet_classes, read_classes, write_classes


def test_classes_survive_their_file(tmp_path: Path) -> None:
    classes = Classes(
        [["fox", "red fox"], ["Käse"]], ["an animal", "food"], torch.rand(2, 5), {1: ["bread"]}
    )
    write_classes(tmp_path / "classes.safetensors", classes)
    read = read_classes(tmp_path / "classes.safetensors")
    assert read.names == classes.names
    assert read.definitions == classes.definitions
    assert read.shown_with == classes.shown_with
    assert read.weight is not None
    np.testing.assert_array_equal(read.weight, np.asarray(classes.weight))


def test_imagenet_has_a_thousand_classes_in_the_order_of_timm() -> None:
    classes = imagenet_classes()
    info = ImageNetInfo()
    assert len(classes.names) == info.num_classes()
    for number, (names, definition) in enumerate(
        zip(classes.names, classes.definitions, strict=True)
    ):
        assert ", ".join(names) == info.index_to_description(number)
        assert definition == info.index_to_description(number, detailed=True)


def test_clothes_of_imagenet_are_shown_with_people() -> None:
    classes = imagenet_classes()
    found = {name for number in classes.shown_with for name in classes.names[number]}
    assert found >= WORN
    assert len(classes.shown_with) == 48  # two kinds of maillot
    assert {"person", "child"} <= set(classes.shown_with[834])
    assert classes.names[834] == ["suit", "suit of clothes"]
    assert 263 not in classes.shown_with  # the dog that is called a Cardigan


def test_counts_that_differ_are_an_error() -> None:
    with pytest.raises(ValueError, match="2 names, 1 definitions and no rows"):
        Classes([["fox"], ["cat"]], ["an animal"])
    with pytest.raises(ValueError, match="1 names, 1 definitions and 3 rows"):
        Classes([["fox"]], ["an animal"], torch.rand(3, 2))


def test_another_file_is_an_error(tmp_path: Path) -> None:
    save_file({"weight": torch.rand(2, 3)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="has no names and no definitions"):
        read_classes(tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="needs the rows"):
        write_classes(tmp_path / "no.safetensors", Classes([["fox"]], ["an animal"]))
