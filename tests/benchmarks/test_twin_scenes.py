"""Twin scenes: the captions of two twins have the same words, and describe different images."""

from collections import Counter

import numpy as np
import pytest
import snowballstemmer
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.twin_scenes import KINDS, TwinScenes
from bifocal.datasets.scenes.captions import MIN_DISTANCE, NUMBERS
from bifocal.datasets.scenes.drawing import draw_scene
from bifocal.evaluation.compositionality.compositionality import edits
from bifocal.text import tokenize

PAIRS = {"seed": st.integers(0, 2**16), "pair": st.integers(0, 400)}
STEM = snowballstemmer.stemmer("english").stemWord


@given(**PAIRS)
def test_the_captions_of_twins_are_equal_bags_of_words(seed, pair):
    corpus = TwinScenes(seed=seed)
    one, other = (corpus.scene("train", 2 * pair + side)[1] for side in (0, 1))
    assert len({sentence.text for sentence in one}) == len(one) == len(other) == 5
    for sentence, of_twin in zip(one, other, strict=True):
        words = [
            [word for word in tokenize(text.text) if word not in ("a", "an")]
            for text in (sentence, of_twin)
        ]
        bags = [Counter(STEM(word) for word in bag) for bag in words]
        assert bags[0] == bags[1]
        assert sentence.text != of_twin.text


@given(**PAIRS)
def test_the_twins_differ_in_what_their_kind_says(seed, pair):
    corpus = TwinScenes(seed=seed)
    kind = corpus.kind(2 * pair)
    one, other = (corpus.scene("val", 2 * pair + side)[0] for side in (0, 1))
    looks = [[group[0].appearance for group in scene.groups] for scene in (one, other)]
    if kind == "binding":
        assert [look.shape for look in looks[0]] == [look.shape for look in looks[1]]
        assert [look.color for look in looks[0]] == [look.color for look in looks[1]][::-1]
    elif kind == "relation":
        assert looks[0] == looks[1][::-1]
    elif kind == "count":
        assert looks[0] == looks[1]
        assert [len(group) for group in one.groups] == [len(group) for group in other.groups][::-1]
        assert len(one.groups[0]) != len(one.groups[1])
    else:
        assert len(one.groups) == len(other.groups) == 1
        assert looks[0][0].shape != looks[1][0].shape
    if kind in ("binding", "relation"):
        (first,), (second,) = one.groups
        gaps = sorted([abs(second.x - first.x), abs(second.y - first.y)])
        assert gaps[0] < gaps[1]
        assert gaps[1] > MIN_DISTANCE


@given(**PAIRS)
def test_a_caption_names_the_objects_of_its_own_image(seed, pair):
    corpus = TwinScenes(seed=seed)
    for side in (0, 1):
        scene, sentences = corpus.scene("test", 2 * pair + side)
        for sentence in sentences:
            assert {group for _, group in sentence.phrases} == set(scene.groups)
            for phrase, group in sentence.phrases:
                assert phrase in sentence.text
                if corpus.kind(2 * pair) == "count":
                    assert phrase.lower().split()[0] == NUMBERS[len(group)]


def test_pairs_of_every_kind_alternate_and_their_images_differ():
    corpus = TwinScenes(seed=3)
    assert [corpus.kind(number) for number in range(0, 8, 2)] == list(KINDS)
    for number in range(0, 8, 2):
        one, other = (
            np.asarray(draw_scene(corpus.scene("train", number + side)[0], 64)) for side in (0, 1)
        )
        assert (one != other).any()


def test_an_odd_number_of_images_is_an_error():
    with pytest.raises(ValueError, match="val is 3, expected an even number"):
        TwinScenes(val=3)


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
