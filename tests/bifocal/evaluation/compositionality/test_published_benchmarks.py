"""SugarCrepe and Winoground in their published files; loops over scores are the reference."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bifocal.datasets.corpora import Winoground as WinogroundCorpus
from bifocal.evaluation import SugarCrepe, Winoground
from bifocal.evaluation.base import Subject
from bifocal.evaluation.compositionality.sugar_crepe import LABELS


def score(subject: Subject, image_id: str, text: str) -> float:
    row = subject.pairs.image_ids.index(image_id)
    model = subject.model
    with torch.inference_mode():
        captions = model.embed_captions(subject.vectorizer.vectorize([text]))
        images = torch.cat(
            [model.embed_images(regions) for regions in subject.pairs.image_batches(4)]
        )
        return float(model.score(images, captions).cross[row, 0])


@pytest.fixture(params=["vectors", "pairs"])
def model_subject(
    request: pytest.FixtureRequest, subject: Subject, grounding_subject: Subject
) -> Subject:
    return subject if request.param == "vectors" else grounding_subject


def test_sugar_crepe_counts_captions_above_their_negatives(
    model_subject: Subject, tmp_path: Path
) -> None:
    subject, expected = model_subject, {}
    images = subject.split.images
    for kind, name in enumerate(LABELS):
        content, right = {}, []
        for number in range(2):
            row = images.iloc[kind + number]
            caption, negative = (
                "a red star above a ring",
                f"a blue {['star', 'box'][number]} above a ring",
            )
            content[str(number)] = {
                "filename": Path(row["path"]).name,
                "caption": caption,
                "negative_caption": negative,
            }
            right.append(
                score(subject, row["image_id"], caption) > score(subject, row["image_id"], negative)
            )
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
        expected[name] = 100 * sum(right) / 2
    result = SugarCrepe(tmp_path)(subject)
    assert {
        name: values["accuracy"] for name, values in result.metrics["sugar_crepe"].items()
    } == expected
    assert {values["captions"] for values in result.metrics["sugar_crepe"].values()} == {2}
    content["0"]["filename"] = "000000000001.jpg"
    (tmp_path / "swap_obj.json").write_text(json.dumps(content))
    with pytest.raises(
        ValueError, match=r"1 images of .* such as 000000000001\.jpg: evaluate COCO's val2017"
    ):
        SugarCrepe(tmp_path)(subject)
    (tmp_path / "swap_obj.json").write_text('{"0": {"filename": "a.jpg"}}')
    with pytest.raises(
        ValueError, match=r"swap_obj\.json: entry 0 has no filename, caption and negative_caption"
    ):
        SugarCrepe(tmp_path)(subject)


def write_examples(path: Path, images: list[str]) -> list[tuple[list[str], list[str], str]]:
    examples = [
        (images[:2], ["a star above a ring", "a ring above a star"], "Object"),
        (images[2:4], ["a red star", "a blue ring"], "Relation"),
        (images[4:6], ["a star", "a star"], "Relation"),
    ]
    rows = [
        {
            "id": number,
            "image_0": pair[0],
            "image_1": pair[1],
            "caption_0": texts[0],
            "caption_1": texts[1],
            "tag": "Scope",
            "secondary_tag": "",
            "num_main_preds": 1,
            "collapsed_tag": tag,
        }
        for number, (pair, texts, tag) in enumerate(examples)
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return examples


def test_winoground_compares_both_images_and_both_captions(
    model_subject: Subject, tmp_path: Path
) -> None:
    subject, file = model_subject, tmp_path / "examples.jsonl"
    examples = write_examples(file, list(subject.split.images["image_id"]))
    right: dict[str, list[bool]] = {"text": [], "image": [], "group": []}
    for images, texts, _ in examples:
        s = [[score(subject, image, text) for text in texts] for image in images]
        text = s[0][0] > s[0][1] and s[1][1] > s[1][0] and texts[0] != texts[1]
        image = s[0][0] > s[1][0] and s[1][1] > s[0][1]
        for name, value in (("text", text), ("image", image), ("group", text and image)):
            right[name].append(value)
    metrics = Winoground(file)(subject).metrics["winoground"]
    for name, values in right.items():
        assert metrics[name]["score"] == pytest.approx(100 * sum(values) / 3)
        tags = {"Object": 100.0 * values[0], "Relation": 50.0 * (values[1] + values[2])}
        assert metrics[name]["tags"] == tags
    assert metrics["examples"] == 3
    file.write_text('{"id": 0}\n')
    with pytest.raises(
        ValueError, match=r"no example of Winoground: examples\.jsonl, line 1: no 'image_0'"
    ):
        Winoground(file)(replace(subject))


def test_winoground_is_a_corpus_of_one_caption_per_image(tmp_path: Path) -> None:
    write_examples(tmp_path / "examples.jsonl", [f"ex_{n // 2}_img_{n % 2}" for n in range(6)])
    corpus = WinogroundCorpus(tmp_path).read(tmp_path)
    first = corpus.images[0]
    assert (len(corpus.images), first.image_id, first.path, first.split) == (
        6,
        "ex_0_img_0",
        "ex_0_img_0.png",
        "test",
    )
    assert [(caption.image_id, caption.text) for caption in corpus.captions[:2]] == [
        ("ex_0_img_0", "a star above a ring"),
        ("ex_0_img_1", "a ring above a star"),
    ]
