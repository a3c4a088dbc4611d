"""CLIP's tokens by tokenizer.json equal open_clip's."""

from functools import cache
from html import unescape
from typing import Any

import ftfy
import open_clip
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bifocal.text.transformer.clip_bpe import clip_tokenizer

LENGTH = 12
SENTENCES = [
    "",
    "  Two RED birds,  it's 1234 o'clock!! ",
    "собака бежит",
    "犬が走る",
    "🐕",
    "xyzzy " * 30,
]
SENTENCES += [
    "café naïve “quoted” don’t\n\tx",
    "I'll we've A&B #tag 3.14",
    "straße İstanbul",
    "<end_of_text> a",
]


@cache
def both() -> tuple[Any, Any]:
    simple = open_clip.get_tokenizer("ViT-B-32", context_length=LENGTH)
    return simple, clip_tokenizer(simple, LENGTH)


def check(sentence: str) -> None:
    simple, tokenizer = both()
    ids = tokenizer.encode(sentence).ids
    assert [*ids, *[0] * (LENGTH - len(ids))] == simple([sentence])[0].tolist()


@pytest.mark.parametrize("sentence", SENTENCES)
def test_tokens_equal_open_clip(sentence: str) -> None:
    check(sentence)


@given(st.text("abdegnorst ABD'’“.,!?-#&1238éÉ犬🐕\n", max_size=40))
def test_any_sentence_that_is_decoded_rightly_has_the_tokens_of_open_clip(sentence: str) -> None:
    # open_clip repairs other text, and decodes entities.
    assume(ftfy.fix_encoding(sentence) == sentence == unescape(sentence))
    check(sentence)


def test_another_tokenizer_has_no_file() -> None:
    canonical = open_clip.tokenizer.SimpleTokenizer(clean="canonicalize")
    assert clip_tokenizer(canonical, LENGTH) is None
    assert clip_tokenizer(object(), LENGTH) is None
