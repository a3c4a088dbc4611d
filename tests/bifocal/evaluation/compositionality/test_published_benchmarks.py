"""SugarCrepe in its published files; loops over scores are the reference."""

import json
from pathlib import Path

import pytest
import torch

from bifocal.evaluation import SugarCrepe
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
