"""Queries and answers of the second round: images of Pillow, words, large numbers, files of other
users; each case with three neighbors that Hypothesis draws."""

import io
import json
import unicodedata
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from PIL import Image

import bifocal
from bifocal.durable import json_text
from bifocal.onnx.text.captions import tokenize
from bifocal.search.filters import matching_rows
from bifocal.search.keywords import Keywords
from bifocal.search.trained_model import COLLECTION
from bifocal.serving.service.description import languages
from tests.bifocal.color_profiles import swapped_profile
from tests.rehearsals.reports.readings import tried
from tests.rehearsals.reports.world import World, photo

TURNS = st.sampled_from([3, 5, 6, 7, 8])
LETTERS = st.text(st.characters(categories=["Ll", "Lo"]), min_size=3, max_size=9)


def keywords_of(*captions: str) -> Keywords:
    names = [str(row) for row in range(len(captions))]
    texts = pa.array([[caption] for caption in captions], pa.list_(pa.string()))
    return Keywords.of(pa.table({"item_id": names, "captions": texts}))


@tried("F6", "a turned photograph with a profile as an image of Pillow", "CLIP#244", 6, TURNS)
def pillow(world: World, orientation: int) -> bool:
    exif, file = Image.Exif(), io.BytesIO()
    exif[0x0112] = orientation
    Image.open(io.BytesIO(photo(1))).save(file, "PNG", exif=exif, icc_profile=swapped_profile())
    path = world.write("photo.png", file.getvalue())
    model = bifocal.load(world.shared.demo)
    vectors = [model.encode_image([image]) for image in (path, str(path), Image.open(path))]
    loaded = Image.open(path)
    loaded.load()
    vectors.append(model.encode_image([loaded]))
    return all(np.array_equal(vectors[0], vector) for vector in vectors)


@tried("F7", "a word composed and decomposed, in both cases", "photoprism#746", "café", LETTERS)
def same_words(world: World, word: str) -> bool:
    texts = [unicodedata.normalize(form, f"the {word}") for form in ("NFC", "NFD", "NFKD")]
    found = keywords_of(*texts, "nothing")
    return all(
        {0, 1, 2} <= set(found.search(query, 9).tolist())
        for query in (*texts, texts[0].casefold())
        if tokenize(query.removeprefix("the"))
    )


@tried(
    "F7",
    "a letter of a sentence without spaces",
    "immich#24285",
    "狗",
    st.characters(min_codepoint=0x4E00, max_codepoint=0x9FFF),
)
def letter(world: World, sign: str) -> bool:
    return keywords_of(f"一只{sign}在雪地里奔跑", "cats").search(sign, 9).tolist() == [0]


@tried(
    "F8",
    "languages of captions that the model cannot read",
    "own",
    "एक कुत्ता बर्फ में दौड़ता है",
    st.sampled_from(["собака бежит по снегу", "犬が公園を走る", "koira juoksee lumessa"]),
)
def read_languages(world: World, caption: str) -> bool:
    known = bifocal.load(world.shared.demo).embedder.sentences.known
    return languages({str(row): [caption] for row in range(20)}, known) == []


@tried("F22", "a query that is not UTF-8", "own", "caf\udce9", LETTERS.map("\udc80{}".format))
def encoding(world: World, query: str) -> bool:
    run = ("--run", world.shared.demo)
    outputs = [
        world.bifocal("search", query, *run),
        world.bifocal("search", "a star", "--plus", query, *run),
        world.bifocal("search", "a star", "--minus", query, *run),
        world.bifocal("where", world.shared.demo / "images" / "00001.jpg", query, *run),
    ]
    return all("is not UTF-8" in output and "Traceback" not in output for output in outputs)


@tried(
    "F24",
    "whole numbers above 2^53",
    "attu#542",
    9007199254741003,
    st.integers(2**53 + 1, 2**63 - 1),
)
def large_number(world: World, number: int) -> bool:
    shown = json.loads(json_text({"id": number}, safe=True))["id"]
    items = pa.table({"meta.id": pa.array([number, number - 1, None], pa.int64())})
    return shown == str(number) and matching_rows(items, {"id": shown}).tolist() == [
        True,
        False,
        False,
    ]


@tried(
    "F35",
    "a run whose default picture cannot be written",
    "deja-vu#904",
    "a red star",
    st.sampled_from(["two blue rings", "a green heart", "stars"]),
)
def read_only(world: World, query: str) -> bool:
    demo = world.shared.demo
    for name in ("search.png", "where.png"):
        (demo / name).unlink(missing_ok=True)
        (demo / name).mkdir()
    try:
        searched = world.bifocal("search", query, "--run", demo)
        pointed = world.bifocal("where", demo / "images" / "00001.jpg", query, "--run", demo)
    finally:
        for name in ("search.png", "where.png"):
            (demo / name).rmdir()
    return all("--picture" in text and "exit" not in text for text in (searched, pointed))


WRONG: dict[str, Callable[[Any], object]] = {
    "None": lambda model: model.encode_text([None]),
    "a gap": lambda model: model.encode_text(["a star", float("nan")]),
    "a path": lambda model: model.encode_image("a/b.jpg"),
    "a number": lambda model: model.search(5),
    "an array": lambda model: model.encode_image([np.zeros((3, 4, 4))]),
}


@tried("F38", "a wrong argument in Python", "txtai#93", "None", st.sampled_from(sorted(WRONG)))
def argument(world: World, name: str) -> bool:
    model = bifocal.load(world.shared.demo)
    assert model.encode_text([]).shape == model.encode_image([]).shape
    try:
        WRONG[name](model)
    except TypeError as error:
        return "got" in str(error) or "expected" in str(error)
    return False


@tried(
    "F40",
    "a sentence with signs of a path",
    "own",
    "a star and/or ring.png",
    st.sampled_from(["red/blue star", "a star.png", "stars/rings and.jpg"]),
)
def sentence(world: World, query: str) -> bool:
    folder = world.bifocal("search", world.shared.demo / "images", "--run", world.shared.demo)
    output = world.bifocal("search", query, "--run", world.shared.demo)
    return "is a folder" in folder and "  1.  0." in output


@tried(
    "F53",
    "numbers and days of a table as words",
    "own",
    (4006381333907, "2015-03-01"),
    st.tuples(st.integers(10**6, 10**13), st.dates().filter(lambda day: day.year > 999).map(str)),
)
def numbers(world: World, values: tuple[int, str]) -> bool:
    world.photos("photos", 3)
    rows = [f"p{row:02}.jpg,a product,{values[0] + row},{values[1]}" for row in range(3)]
    world.write("photos/captions.csv", "\n".join(["image,caption,ean,day", *rows, ""]))
    world.index("photos")
    model = bifocal.load(world.folder / "runs" / "photos-index")
    assert (model.directory / COLLECTION).is_dir()
    searched = model._search.keywords()
    found = searched.search(str(values[0] + 1), 1).tolist()
    return [model.index.ids[row] for row in found] == ["p01.jpg"] and len(
        searched.search(values[1][:4], 9)
    ) == 3
