"""CLIP's byte pair encoding as a ``tokenizer.json``."""

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer

WORDS = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
"""Pattern of the tokens that are split further, of open_clip's ``SimpleTokenizer``."""
QUOTES = {"‘": "'", "’": "'", "“": '"', "”": '"'}


def clip_tokenizer(simple: Any, context_length: int) -> "Tokenizer | None":
    """Return a fast byte-pair tokenizer equal to open_clip's for plain text; None for other than its default cleaning.

    Unlike open_clip, it straightens quotes but does not repair wrongly decoded text and HTML entities.
    """
    merges = getattr(simple, "bpe_ranks", None)
    if merges is None or simple.reduction_fn is not None or getattr(simple.clean_fn, "__name__", "") != "_clean_lower":
        return None
    from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

    start, end = simple.sot_token_id, simple.eot_token_id
    names = {number: name for name, number in simple.encoder.items()}
    ordered = sorted((merge for merge in merges if len(merge) == 2), key=merges.get)
    tokenizer = Tokenizer(models.BPE(simple.encoder, ordered, end_of_word_suffix="</w>", fuse_unk=False))
    straight = [normalizers.Replace(curly, quote) for curly, quote in QUOTES.items()]
    spaces = normalizers.Replace(Regex(r"\s+"), " ")
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), *straight, spaces, normalizers.Lowercase()])
    special = "|".join(re.escape(names[number]) for number in (start, end))
    split = pre_tokenizers.Split(Regex(f"{special}|{WORDS}"), "removed", invert=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.add_special_tokens([AddedToken(names[number], normalized=False) for number in (start, end)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{names[start]} $A {names[end]}", special_tokens=[(names[start], start), (names[end], end)]
    )
    tokenizer.enable_truncation(context_length)
    return tokenizer
