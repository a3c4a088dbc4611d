"""Functions of the static copy in headless Chromium equal Python's: vectorizers, stems, filters."""

import json
import math
import random
import unicodedata
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pyarrow as pa
import pytest
from playwright.sync_api import Browser, Page
from snowballstemmer import stemmer
from snowballstemmer.english_stemmer import EnglishStemmer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from bifocal.onnx.text.captions import Vocabulary
from bifocal.onnx.text.sentences import SentenceReader
from bifocal.onnx.text.tfidf import TFIDF
from bifocal.search.filters import matching_rows
from bifocal.serving.service.description import columns as metadata_columns
from bifocal.serving.site.contents import describe_column
from bifocal.serving.site.sentences import NotInBrowsers, describe_readers
from bifocal.text.transformer.clip_bpe import clip_tokenizer
from tests.bifocal.serving.site.static_copy import serve_files
from tests.browser import open_tab

PAGE = Path(__file__).parents[4] / "bifocal/serving/page/static"
READ = """async ([descriptions, sentences]) => {
  const { openReaders } = await import("/vectorizers.js");
  const readers = openReaders(descriptions);
  const plain = ([data, shape]) => [Array.from(data, Number), shape];
  return sentences.map((sentence) => readers.flatMap((reader) => reader.read(sentence)).map(plain));
}"""
FILTER = """async ([where, columns, count]) => {
  const { compileFilter } = await import("/filter.js");
  try {
    const fulfills = compileFilter(where, columns);
    return Array.from({ length: count }, (_, row) => fulfills(row));
  } catch (error) {
    return error.name;
  }
}"""
STEM = "async (words) => { const { stem } = await import('/stem.js'); return words.map(stem); }"
TEXT = (
    "a dogs RUNNING over the café naïve Straße İstanbul ΣΊΣΥΦΟΣ don't dogs' boy’s well-known "
    "rock-'n'-roll [CLS] [MASK] [UNK] ##ing 中国 日本語 e\u0301 \u200b \ufeff \u00ad \ufffd \t \n "
    "🐶🏽 ﬁ ½ Ⅷ x² 𝒳 𠀀 K ſun 3.5 $ £ … -- ' - happily generously relational"
)
WORDS = TEXT.split(" ")
OLD = [
    chr(code)
    for code in range(1, 0x30000)
    if unicodedata.ucd_3_2_0.category(chr(code)) not in ("Cn", "Cs", "Co")
    and not 0xD800 <= code < 0xE000
]
"""Characters of Unicode 3.2: browsers and Python packages know newer ones of different versions."""


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    """A tab that imports the files of the page."""
    with serve_files(PAGE) as host, open_tab(browser, f"{host}/en.json") as (opened, _):
        yield opened


def sentences(count: int) -> list[str]:
    """Return random captions, of words and of any characters."""
    chosen = random.Random(0)
    latin = OLD[:600]
    made = ["", " ", "dogs " * 150, "x" * 100, "x" * 101, "a\u0301" * 60, *WORDS]
    while len(made) < count:
        signs = chosen.choice([latin, OLD, WORDS, WORDS])
        between = chosen.choice([" ", "", ", ", "-"])
        made.append(between.join(chosen.choice(signs) for _ in range(chosen.randrange(14))))
    return made


def check(page: Page, onnx: Path, texts: list[str]) -> None:
    found = page.evaluate(READ, [json.loads(json.dumps(describe_readers(onnx))), texts])
    reader = SentenceReader(onnx)
    for text, inputs in zip(texts, found, strict=True):
        expected = reader.read([text])
        assert [shape for _, shape in inputs] == [list(array.shape) for array in expected], ascii(
            text
        )
        for (data, _), array in zip(inputs, expected, strict=True):
            assert np.abs(array.ravel() - data).max(initial=0) < 1e-5, ascii(text)


@pytest.mark.parametrize("buckets", [0, 11])
def test_ids_of_words(buckets: int, page: Page, tmp_path: Path) -> None:
    words = [
        "dogs",
        "café",
        "istanbul",
        "σίσυφος",
        "don't",
        "boy's",
        "中国",
        "fi",
        "1⁄2",
        "viii",
        "x2",
    ]
    Vocabulary(words, buckets).save(tmp_path / Vocabulary.FILE)
    check(page, tmp_path, sentences(400))


def test_tokens_of_clip(page: Page, tmp_path: Path) -> None:
    simple = open_clip.get_tokenizer("ViT-B-32")
    (tmp_path / "visual").mkdir()
    (tmp_path / "visual" / "model.onnx").touch()
    (tmp_path / "textual").mkdir()
    # With and without the quotes that Bifocal straightens; Immich's tokenizer.json has
    # RobertaProcessing.
    own = clip_tokenizer(simple, 77)
    assert own is not None
    (tmp_path / "config.json").write_text('{"text_cfg": {"context_length": 20}}')
    (tmp_path / "textual" / "tokenizer_config.json").write_text('{"pad_token": "<end_of_text>"}')
    published = json.loads(own.to_str())
    published["normalizer"]["normalizers"] = [
        step
        for step in published["normalizer"]["normalizers"]
        if "String" not in step.get("pattern", {})
    ]
    published["post_processor"] = {
        "type": "RobertaProcessing",
        "sep": ["<end_of_text>", 49407],
        "cls": ["<start_of_text>", 49406],
        "trim_offsets": False,
        "add_prefix_space": False,
    }
    for content in (json.loads(own.to_str()), published):
        (tmp_path / "textual" / "tokenizer.json").write_text(json.dumps(content))
        check(page, tmp_path, [*sentences(150), "two “curly” ‘quotes’", "<end_of_text> a dog"])


def test_other_tokens_of_towers_are_refused(tmp_path: Path) -> None:
    (tmp_path / "visual").mkdir()
    (tmp_path / "visual" / "model.onnx").touch()
    (tmp_path / "config.json").write_text('{"text_cfg": {}}')
    write_tokenizer(tmp_path / "textual", lower=True)
    (tmp_path / "textual" / "tokenizer_config.json").write_text('{"pad_token": "[PAD]"}')
    with pytest.raises(
        NotInBrowsers, match="has a tokenizer of other parts than CLIP's: WordPiece"
    ):
        describe_readers(tmp_path)


def write_terms(folder: Path, normalize: bool) -> None:
    folder.mkdir(parents=True)
    words = ["dogs", "run", "over", "café", "istanbul", "well-known", "generously", "x2", "k"]
    stems = [*dict.fromkeys(stemmer("english").stemWords(words))]
    weights = np.random.default_rng(0).uniform(1, 5, len(stems)).astype(np.float32)
    arguments = {"documents": "captions" if normalize else "images"}
    vectorizer = TFIDF(**arguments)
    vectorizer.terms, vectorizer.idf = {term: row for row, term in enumerate(stems)}, weights
    vectorizer.removed, vectorizer.wordnet = frozenset(["over"]), None
    vectorizer.save(folder)
    (folder / "config.json").write_text(json.dumps({"name": "TFIDF", "arguments": arguments}))


def write_tokenizer(folder: Path, lower: bool) -> None:
    """Write a tokenizer of BERT's parts with some subwords."""
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *"abcdefghijklmnopqrstuvwxyzσςίι0123456789-'.,$中国½",
    ]
    pieces += [f"##{piece}" for piece in "abcdefghijklmnopqrstuvwxyzσς0123456789"]
    pieces += ["dog", "##ing", "run", "##ning", "well"]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(
        models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100)
    )
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lower)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = [("[CLS]", 2), ("[SEP]", 3)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=special
    )
    tokenizer.add_special_tokens(pieces[:5])
    tokenizer.enable_truncation(64)
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"name": "SentenceVectors", "arguments": {}}))


@pytest.mark.parametrize("normalize", [True, False])
def test_weights_of_terms_beside_subwords(normalize: bool, page: Page, tmp_path: Path) -> None:
    write_terms(tmp_path / "text" / "0", normalize)
    write_tokenizer(tmp_path / "text" / "1", lower=normalize)
    (tmp_path / "text" / "config.json").write_text(
        json.dumps({"name": "Concatenated", "arguments": {}})
    )
    check(page, tmp_path, sentences(400))


def test_stems(page: Page) -> None:
    chosen, known = random.Random(0), stemmer("english")
    tables = [table for name, table in vars(EnglishStemmer).items() if name.startswith("a_")]
    ends = [entry.s for table in tables for entry in table]
    words = list(ends)
    for _ in range(6_000):
        letters = chosen.choice(["aeiouybdlnst", "abcdefghijklmnopqrstuvwxyz", "aeyéstl'-𝒳"])
        start = chosen.choice(["", "gener", "past", "skis", *ends]) if chosen.random() < 0.5 else ""
        middle = "".join(chosen.choice(letters) for _ in range(chosen.randrange(6)))
        words.append(
            start + middle + "".join(chosen.choice(ends) for _ in range(chosen.randrange(3)))
        )
    found: Any = page.evaluate(STEM, words)
    assert found == known.stemWords(words)


ZONED = pa.timestamp("us", tz="UTC")
ITEMS = pa.table(
    {
        "meta.city": ["Oslo", "Rome", None, "", "Ünïcode 星"],
        "meta.year": pa.array([1998, 2004, None, -3, 2**40], pa.int64()),
        "meta.price": pa.array([0.1, 2.5, None, math.nan, -1.0], pa.float64()),
        "meta.small": pa.array([0.1, 2.5, None, math.nan, -1.0], pa.float32()),
        "meta.sold": [True, False, None, True, True],
        "meta.day": pa.array(
            [date(2024, 5, 1), date(1969, 1, 2), None, date(2024, 5, 2), date(2025, 1, 1)]
        ),
        "meta.taken": pa.array(
            [datetime(2024, 5, 1, 12, 30), None, datetime(1999, 1, 1), datetime(2024, 5, 1), None]
        ),
        "meta.zoned": pa.array([datetime(2024, 5, 1, 12, 30, tzinfo=UTC)] * 2 + [None] * 3, ZONED),
        "meta.kind": pa.array(["a", "b", None, "a", "b"]).dictionary_encode(),
    }
)
CONDITIONS: list[dict[str, Any]] = [
    {},
    *(
        {"city": value}
        for value in ("Oslo", "", ["Rome", "-"], [], {"min": "P"}, {"max": "P"}, 3, None, True, {})
    ),
    *(
        {"year": value}
        for value in (2004, [1998, -3], {"min": 1999}, {"min": -3, "max": 1998}, 2.5, "2004", True)
    ),
    *(
        {"price": value}
        for value in (0.1, [0.1, 2.5], {"min": 0}, {"max": 0.1}, "0.1", False, {"least": 1})
    ),
    *({"small": value} for value in (0.1, [0.1, 2.5], {"min": 0.1}, {"max": 0.1}, 1)),
    *({"sold": value} for value in (True, False, [True, False], 1, "true")),
    *(
        {"day": value}
        for value in (
            "2024-05-01",
            {"min": "2024-05-02"},
            {"max": "1970-01-01"},
            ["1969-01-02"],
            "May",
        )
    ),
    *(
        {"taken": value}
        for value in ("2024-05-01", "2024-05-01T12:30:00", {"min": "2024-05-01"}, {"max": "2000"})
    ),
    *({name: {"max": end}} for name in ("taken", "day") for end in ("2024-05-01", "2024-04-30")),
    *(
        {"taken": value}
        for value in (
            "2024",
            "2024-05",
            ["1999", "2024-05-01"],
            {"min": "2024-05", "max": "2024"},
            2024,
        )
    ),
    {"year": {"min": 1998.5}},
    {"city": {"min": "10"}},
    {"zoned": {"min": "2024-05-01T12:30:00Z"}},
    {"zoned": {"min": "2024-05-01T12:30:01+00:00"}},
    {"kind": "a", "year": {"max": 0}},
    {"nothing": 1},
]


@pytest.mark.parametrize("where", CONDITIONS, ids=json.dumps)
def test_filters(where: dict[str, Any], page: Page) -> None:
    columns = [
        describe_column(column, ITEMS[f"meta.{column.name}"]) for column in metadata_columns(ITEMS)
    ]
    for column in columns:
        column.setdefault(
            "filtered", [None if v != v else v for v in ITEMS[f"meta.{column['name']}"].to_pylist()]
        )
    found = page.evaluate(FILTER, [where, columns, len(ITEMS)])
    try:
        expected: Any = matching_rows(ITEMS, where).tolist()
    except ValueError:
        expected = "RangeError"
    assert found == expected
