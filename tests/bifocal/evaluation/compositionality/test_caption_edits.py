"""Edits of captions."""

from collections import Counter

import pytest

from bifocal.datasets.corpora import TwinScenes
from bifocal.evaluation.compositionality.caption_edits import edits
from bifocal.text import tokenize


@pytest.mark.parametrize(
    ("caption", "name", "edited"),
    [
        ("A red star above an orange ring.", "attributes", "an orange star above a red ring"),
        ("A small dog and two large cats", "attributes", "a large dog and two small cats"),
        ("A man in a black and white shirt", "attributes", None),
        ("An orange star above two blue rings", "attributes", None),
        ("A man with a dog", "nouns", "a dog with a man"),
        ("A man and a woman", "nouns", None),
        ("Two horses beside a child", "nouns", "two child beside a horses"),
        ("A boy in front of a blue box", "relation", "a boy behind a blue box"),
        ("A star behind a ring", "relation", "a star in front of a ring"),
        ("A star lower down than a ring", "relation", "a star higher down than a ring"),
        ("Two stars and three rings", "count", "three stars and two rings"),
        ("Two dogs run", "count", "three dogs run"),
        ("A dog runs", "count", None),
        ("A red plus sign but no orange ring on sand.", "negation", "an orange ring but no red plus sign on sand"),
        ("A man with a hat", "negation", "a man without a hat"),
        ("A dog runs", "negation", None),
        ("no dog", "negation", None),
    ],
)
def test_an_edit_describes_another_image(caption, name, edited):
    assert edits(caption)[1].get(name) == edited


def test_a_shuffle_depends_on_the_caption_alone_and_keeps_its_words():
    caption, changed = edits("A dog runs over wet grass.")
    assert changed["order"] == edits(caption)[1]["order"] != caption
    assert Counter(changed["order"].split()) == Counter(caption.split())
    assert "order" not in edits("Dogs")[1]


@pytest.mark.parametrize(("number", "name"), [(0, "attributes"), (4, "count"), (6, "negation")])
def test_an_edit_of_a_twin_scene_is_the_caption_of_its_twin(number, name):
    corpus = TwinScenes(seed=5)
    for pair in range(0, 80, 8):
        captions, others = (corpus.scene("val", pair + number + side)[1] for side in (0, 1))
        for caption, other in zip(captions, others, strict=True):
            edited = edits(caption.text)[1][name]
            if name == "count":  # the edit does not change the nouns to singular and plural
                assert [word for word in edited.split() if word in ("one", "two", "three")] == [
                    word for word in tokenize(other.text) if word in ("one", "two", "three")
                ]
            else:
                assert edited == edits(other.text)[0]
