"""People's corrections: an append-only file, and further captions and negatives of a folder."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from bifocal.datasets import read_dataset, write_dataset
from bifocal.datasets.corpora import ImageFolder
from bifocal.datasets.corrections import add_correction, read_corrections

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
PRINTABLE = st.characters(exclude_categories=["C", "Z"]) | st.just(" ")
NAMES = st.text(PRINTABLE, min_size=1, max_size=12)


@given(
    entries=st.lists(st.tuples(NAMES, TEXTS, st.booleans()), max_size=8),
    torn=st.binary(max_size=5),
)
def test_corrections_are_read_as_they_were_given_and_the_last_one_counts(
    tmp_path_factory: pytest.TempPathFactory,
    entries: list[tuple[str, str, bool]],
    torn: bytes,
) -> None:
    file = tmp_path_factory.mktemp("corrections") / "corrections.csv"
    expected = {}
    for image, text, right in entries:
        words = " ".join(text.split())
        if not words:
            with pytest.raises(ValueError, match="needs a text"):
                add_correction(file, image, text, right=right)
            continue
        add_correction(file, image, text, right=right)
        expected[image, words] = right
    assert read_corrections(file) == (expected, [])
    before = file.read_bytes() if file.is_file() else b""
    if before and not {*torn} & {*b'"\r\n'}:
        file.write_bytes(before + torn)  # a killed process
        add_correction(file, "last", "text", right=True)
        assert file.read_bytes().startswith(before + torn)
        assert read_corrections(file)[0]["last", "text"]


def test_a_folder_learns_corrections_but_not_of_its_test_split(tmp_path: Path) -> None:
    root, file = tmp_path / "photos", tmp_path / "corrections.csv"
    root.mkdir()
    splits = ("train",) * 4 + ("val", "test")
    lines = ["image,caption,split"]
    for number, split in enumerate(splits):
        Image.new("RGB", (8, 8), (40 * number, 99, 9)).save(root / f"{number}.jpg")
        lines.append(f"{number}.jpg,a photo,{split}")
    Image.new("RGB", (8, 8)).save(root / "6.jpg")
    (root / "captions.csv").write_text("\n".join(lines))
    for image, text, right in (
        ("0.jpg", "a carrot", True),
        ("1.jpg", "a carrot", False),
        ("5.jpg", "a carrot", True),
        ("5.jpg", "a dog", False),
        ("6.jpg", "a parsnip", True),
        ("gone.jpg", "a dog", True),
    ):
        add_correction(file, image, text, right=right)
    with file.open("a") as opened:
        opened.write("now,2.jpg,a dog,perhaps\n")
    corpus = ImageFolder(root, corrections=file).read(tmp_path)
    (tmp_path / "dataset").mkdir()
    write_dataset(
        tmp_path / "dataset",
        "ImageFolder",
        corpus,
        copy_images=False,
        max_pixels=10**6,
        max_rejected_fraction=1.0,
    )
    dataset = read_dataset(tmp_path / "dataset")
    captions = set(zip(dataset.captions["image_id"], dataset.captions["text"], strict=True))
    assert captions == {
        *((f"{n}.jpg", "a photo") for n in range(6)),
        ("0.jpg", "a carrot"),
        ("6.jpg", "a parsnip"),
    }
    corrections = dataset.corrections.set_index("caption_id")
    assert corrections.to_numpy().tolist() == [
        ["0.jpg", "a carrot", True],
        ["1.jpg", "a carrot", False],
        ["6.jpg", "a parsnip", True],
    ]
    of_captions = dataset.captions.set_index("caption_id")
    right = corrections[corrections["right"]].drop(columns="right")
    assert of_captions.index.is_unique
    assert of_captions.loc[right.index].equals(right)
    assert not {*corrections.index[~corrections["right"]]} & {*of_captions.index}
    reasons = {entry.entry: entry.reason for entry in [*corpus.excluded, *corpus.rejected]}
    for entry in ("5.jpg: a carrot", "5.jpg: a dog"):
        assert "of the split test, which measures" in reasons[entry]
    assert "not used" in reasons["gone.jpg: a dog"]
    assert "'right' or 'not this'" in reasons["corrections.csv, line 8"]
