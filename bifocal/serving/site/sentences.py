"""Descriptions of vectorizers, from which the page turns a sentence into inputs of the text
encoder."""

import json
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bifocal.onnx.text.captions import Vocabulary
from bifocal.onnx.text.sentences import open_readers
from bifocal.onnx.text.tokenizer import TOKENIZER
from bifocal.onnx.towers import TowerTokens, is_towers

Description = dict[str, Any]
STEMS = MappingProxyType(
    {"emergency": "emergenc", "evening": "evening", "geologist": "geolog", "pasted": "paste"}
)
"""Stems by Snowball 3, which differ from earlier versions."""
TEMPLATE, PAIR, ROBERTA = "TemplateProcessing", "BertProcessing", "RobertaProcessing"


class NotInBrowsers(ValueError):
    """A vectorizer that the page does not have."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"the vectorizer {name} {reason}; a static copy can have token ids of a "
            "vocabulary, TFIDF with English stems, the WordPiece tokens of BERT, and CLIP's "
            "byte pairs. Use 'bifocal serve' for this model"
        )


def describe_readers(onnx: Path) -> list[Description]:
    """Return the descriptions that ``page/vectorizers.js`` reads, one per vectorizer, in the order
    of the inputs."""
    vocabulary, folder = onnx / Vocabulary.FILE, onnx / "text"
    if is_towers(onnx):
        return [_describe_tokens(TowerTokens(onnx))]
    if vocabulary.is_file():
        known = Vocabulary.load(vocabulary)
        return [{"kind": "words", "words": known.words, "buckets": known.buckets}]
    if not (folder / "config.json").is_file():
        raise NotInBrowsers("ElmoLayers", "computes contextual vectors by a second network")
    return _describe(folder)


def _describe(folder: Path) -> list[Description]:
    name = json.loads((folder / "config.json").read_text(encoding="utf-8"))["name"]
    if name == "Concatenated":
        parts = sorted(
            (path for path in folder.iterdir() if path.name.isdigit()),
            key=lambda path: int(path.name),
        )
        return [description for part in parts for description in _describe(part)]
    if name not in DESCRIBED:
        raise NotInBrowsers(name, "has no implementation for browsers")
    return [DESCRIBED[name](folder, name)]


def _terms(folder: Path, name: str) -> Description:
    vectorizer: Any = open_readers(folder)[0]
    if vectorizer.wordnet is not None:
        raise NotInBrowsers(name, "uses lemmas of WordNet")
    if vectorizer.language != "english":
        raise NotInBrowsers(name, f"uses stems of the language {vectorizer.language}")
    if any(
        word not in vectorizer.removed and vectorizer.forms([word]) != [stem]
        for word, stem in STEMS.items()
    ):
        raise NotInBrowsers(name, "uses an older stemmer: pip install 'snowballstemmer>=3'")
    return {
        "kind": "terms",
        "terms": sorted(vectorizer.terms, key=vectorizer.terms.__getitem__),
        "idf": [float(weight) for weight in vectorizer.idf],
        "stop_words": sorted(vectorizer.removed),
        "normalize": vectorizer.normalize,
    }


def describe_subwords(folder: Path, name: str) -> Description:
    """Return the description of a folder's WordPiece tokenizer; ``name`` is for the error."""
    content = json.loads((folder / TOKENIZER).read_text(encoding="utf-8"))
    model, normalizer = content["model"], content["normalizer"] or {}
    parts = [
        (content[part] or {}).get("type")
        for part in ("normalizer", "pre_tokenizer", "post_processor", "model")
    ]
    processor = PAIR if parts[2] == PAIR else TEMPLATE
    if (
        parts != ["BertNormalizer", "BertPreTokenizer", processor, "WordPiece"]
        or not normalizer["clean_text"]
    ):
        raise NotInBrowsers(
            name, f"has a tokenizer of other parts than BERT's: {', '.join(map(str, parts))}"
        )
    added = content["added_tokens"]
    if any(
        token[key] for token in added for key in ("single_word", "lstrip", "rstrip", "normalized")
    ):
        raise NotInBrowsers(name, "has added tokens that are not matched as they are")
    truncation = content["truncation"]
    if truncation is None or truncation["direction"] != "Right":
        raise NotInBrowsers(name, "does not truncate sentences at their end")
    before, after = _template(content["post_processor"])
    return {
        "kind": "subwords",
        "vocabulary": model["vocab"],
        "special": {token["content"]: token["id"] for token in added},
        "unknown": model["vocab"][model["unk_token"]],
        "prefix": model["continuing_subword_prefix"],
        "longest": model["max_input_chars_per_word"],
        "before": before,
        "after": after,
        "max_tokens": truncation["max_length"],
        "lower": normalizer["lowercase"],
        "accents": normalizer["lowercase"]
        if normalizer["strip_accents"] is None
        else normalizer["strip_accents"],
        "chinese": normalizer["handle_chinese_chars"],
    }


def _describe_tokens(tokens: TowerTokens) -> Description:
    """Return the description of CLIP's byte pair encoding."""
    content = json.loads(tokens.tokenizer.tokenizer.to_str())
    model, normalizer = content["model"], content["normalizer"] or {}
    steps = [step["type"] for step in normalizer.get("normalizers", [])]
    if (
        model["type"] != "BPE"
        or model.get("end_of_word_suffix") != "</w>"
        or steps[-1:] != ["Lowercase"]
    ):
        raise NotInBrowsers(
            "of the encoder's text tower",
            f"has a tokenizer of other parts than CLIP's: {model['type']}",
        )
    (split,) = (
        step for step in content["pre_tokenizer"]["pretokenizers"] if step["type"] == "Split"
    )
    before, after = _template(content["post_processor"])
    return {
        "kind": "tokens",
        "vocabulary": model["vocab"],
        "merges": model["merges"],
        "special": {token["content"]: token["id"] for token in content["added_tokens"]},
        "split": split["pattern"]["Regex"],
        "quotes": steps.count("Replace") > 1,
        "before": before,
        "after": after,
        "max_tokens": tokens.length,
        "padding": tokens.padding,
    }


def _template(processor: Description) -> tuple[list[int], list[int]]:
    """Return the ids of the special tokens before and after a sentence."""
    if processor["type"] in (PAIR, ROBERTA):
        return [processor["cls"][1]], [processor["sep"][1]]
    before: list[int] = []
    after: list[int] = []
    current = before
    for piece in processor["single"]:
        if "Sequence" in piece:
            current = after
        else:
            current += processor["special_tokens"][piece["SpecialToken"]["id"]]["ids"]
    return before, after


DESCRIBED: dict[str, Callable[[Path, str], Description]] = {
    "SentenceVectors": describe_subwords,
    "Subwords": describe_subwords,
    "TFIDF": _terms,
    "TransformerTokens": describe_subwords,
}
"""Vectorizers that the page has, by name."""
