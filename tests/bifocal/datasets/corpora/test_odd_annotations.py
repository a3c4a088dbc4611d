"""One odd annotation costs at most that annotation, and is listed: null, a text, a list, a number
or nothing."""

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bifocal.datasets.base import Corpus
from tests.bifocal.datasets.corpora.entries import UNUSED
from tests.bifocal.datasets.corpora.published import COUNT, READERS, TEXTS, write


def places(value: Any, number: int | None = None) -> list[tuple[Any, Any, int]]:
    """Containers and keys of everything inside the records of a file, with the number of their
    image."""
    found: list[tuple[Any, Any, int]] = []
    keys = (
        range(len(value))
        if isinstance(value, list)
        else list(value)
        if isinstance(value, dict)
        else []
    )
    for key in keys:
        own = number
        if own is None and isinstance(value, list):
            own = key + 1
        elif own is None and str(key)[0].isdigit():
            own = int(str(key)[0])
        if own is not None:
            found.append((value, key, own))
        found += places(value[key], own)
    return found


def by_image(corpus: Corpus) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {image.image_id: [repr(image)] for image in corpus.images}
    for caption in corpus.captions:
        found.setdefault(caption.image_id, []).append(caption.text)
    for phrase in corpus.phrases:
        found.setdefault(phrase.image_id, []).append(
            repr((phrase.phrase, phrase.boxes, phrase.mask, phrase.category))
        )
    for label in corpus.labels:
        found.setdefault(label.image_id, []).append(repr(label))
    return found


@pytest.mark.parametrize("name", READERS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.data(), odd=st.sampled_from([None, "odd", ["odd"], [], {}, -7, 2.5, True, "nothing"])
)
def test_an_odd_annotation_costs_at_most_its_image(
    tmp_path: Path, name: str, data: st.DataObject, odd: Any
) -> None:
    make, reader = READERS[name]
    intact, files = make(), make()
    write(tmp_path, intact)
    expected = by_image(reader(tmp_path).read(UNUSED))
    assert len(expected) == COUNT
    file = data.draw(st.sampled_from([file for file in files if "splits" not in file]))
    container, key, number = data.draw(st.sampled_from(places(files[file])))
    if odd == "nothing":
        del container[key]
    else:
        container[key] = copy.deepcopy(odd)
    write(tmp_path, files)
    corpus = reader(tmp_path).read(UNUSED)
    found = by_image(corpus)
    for image, entries in expected.items():
        if image[:1] != str(number):
            assert found[image] == entries
    texts = {caption.text for caption in corpus.captions} | {
        phrase.phrase for phrase in corpus.phrases
    }
    assert all(text in [*TEXTS, "odd"] or text.startswith("star ") for text in texts)
    lost = sum(map(len, expected.values())) > sum(map(len, found.values()))
    assert not lost or corpus.rejected or corpus.excluded or odd in ("nothing", [], "odd", -7)
