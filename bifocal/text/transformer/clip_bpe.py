"""Tokenizers of open_clip as a ``tokenizer.json``: CLIP's byte pair encoding, and published
ones."""

import re
import string
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer

WORDS = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
"""Pattern of the tokens that are split further, of open_clip's ``SimpleTokenizer``."""
CLEANED = ("_clean_whitespace", "_clean_canonicalize")
"""Functions of open_clip that clean sentences for published tokenizers."""
QUOTES = {"‘": "'", "’": "'", "“": '"', "”": '"'}


def tower_tokenizer(tokenizer: Any, context_length: int) -> "Tokenizer | None":
    """Return a fast tokenizer that equals one of open_clip for plain text, with its padding, or
    None."""
    own = clip_tokenizer(tokenizer, context_length)
    if own is not None or not is_published(tokenizer):
        return own
    from tokenizers import Regex, Tokenizer, normalizers

    published = tokenizer.tokenizer
    fast = Tokenizer.from_str(published.backend_tokenizer.to_str())
    steps = [normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    if tokenizer.clean_fn.__name__ == CLEANED[1]:
        marks = re.escape(string.punctuation.replace("_", ""))
        steps = [
            normalizers.Replace("_", " "),
            normalizers.Replace(Regex(f"[{marks}]"), ""),
            normalizers.Lowercase(),
            *steps,
        ]
    fast.normalizer = normalizers.Sequence(
        [*steps, *([fast.normalizer] if fast.normalizer else [])]
    )
    fast.enable_truncation(context_length)
    fast.enable_padding(
        length=context_length, pad_id=published.pad_token_id, pad_token=published.pad_token
    )
    return fast


def is_published(tokenizer: Any) -> bool:
    """Return whether a tokenizer of open_clip only cleans the text of a published, fast one, and
    pads its ids."""
    clean, own = (
        getattr(getattr(tokenizer, "clean_fn", None), "__name__", ""),
        getattr(tokenizer, "tokenizer", None),
    )
    changed = getattr(tokenizer, "tokenizer_mode", "") or getattr(
        tokenizer, "strip_sep_token", False
    )
    return clean in CLEANED and not changed and getattr(own, "backend_tokenizer", None) is not None


def clip_tokenizer(simple: Any, context_length: int) -> "Tokenizer | None":
    """Return a fast byte-pair tokenizer equal to open_clip's for plain text; None for other than
    its default cleaning.

    Unlike open_clip, it straightens quotes but does not repair wrongly decoded text and HTML
    entities.
    """
    merges = getattr(simple, "bpe_ranks", None)
    if (
        merges is None
        or simple.reduction_fn is not None
        or getattr(simple.clean_fn, "__name__", "") != "_clean_lower"
    ):
        return None
    from tokenizers import (
        AddedToken,
        Regex,
        Tokenizer,
        models,
        normalizers,
        pre_tokenizers,
        processors,
    )

    start, end = simple.sot_token_id, simple.eot_token_id
    names = {number: name for name, number in simple.encoder.items()}
    ordered = sorted((merge for merge in merges if len(merge) == 2), key=merges.get)
    tokenizer = Tokenizer(
        models.BPE(simple.encoder, ordered, end_of_word_suffix="</w>", fuse_unk=False)
    )
    straight = [normalizers.Replace(curly, quote) for curly, quote in QUOTES.items()]
    spaces = normalizers.Replace(Regex(r"\s+"), " ")
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), *straight, spaces, normalizers.Lowercase()]
    )
    special = "|".join(re.escape(names[number]) for number in (start, end))
    split = pre_tokenizers.Split(Regex(f"{special}|{WORDS}"), "removed", invert=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.add_special_tokens(
        [AddedToken(names[number], normalized=False) for number in (start, end)]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{names[start]} $A {names[end]}",
        special_tokens=[(names[start], start), (names[end], end)],
    )
    tokenizer.enable_truncation(context_length)
    return tokenizer
