"""Retrieval against judgments: loops and the package of ECCV Caption on drawn judgments as
references."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bifocal.evaluation import JudgedRetrieval, Retrieval
from bifocal.evaluation.base import Subject

KS = (1, 5, 10)
Lists = dict[str, list[str]]


@pytest.fixture(scope="module")
def numbered(subject: Subject) -> Subject:
    """The subject with numbers as ids, as in COCO."""
    split = subject.split
    number = {image_id: str(row + 1) for row, image_id in enumerate(split.images["image_id"])}
    renamed = replace(
        split,
        images=split.images.assign(image_id=split.images["image_id"].map(number)),
        captions=split.captions.assign(
            image_id=split.captions["image_id"].map(number),
            caption_id=range(100, 100 + len(split.captions)),
        ),
    )
    result = replace(subject)
    # The stores know the previous ids.
    result.__dict__.update(
        {"split": renamed, "pairs": subject.pairs, "embeddings": subject.embeddings}
    )
    return result


@pytest.fixture(scope="module")
def judged(
    numbered: Subject, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Lists, Lists]:
    """Folder of drawn judgments in the layout of the package, captions by image, and images by
    caption."""
    random = np.random.default_rng(0)
    images = numbered.split.images["image_id"].tolist()
    captions = [str(caption_id) for caption_id in numbered.split.captions["caption_id"]]
    by_image = {
        one: random.choice(captions, random.integers(1, 9), replace=False).tolist()
        for one in images[:7]
    }
    by_caption = {
        one: random.choice(images, random.integers(1, 6), replace=False).tolist()
        for one in captions[::2]
    }
    by_image[images[0]].append("999999")  # as ECCV Caption's two captions of the sixth place
    folder = tmp_path_factory.mktemp("judged")
    for name, lists in (("image_to_caption", by_image), ("caption_to_image", by_caption)):
        numbers = {query: [int(one) for one in found] for query, found in lists.items()}
        (folder / f"eccv_{name}.json").write_text(json.dumps(numbers))
    return folder, by_image, by_caption


@pytest.fixture(scope="module")
def retrieved(numbered: Subject) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Ids of captions by image and of images by caption, sorted by score."""
    assert numbered.embeddings is not None
    images, captions = (vectors.double().numpy() for vectors in numbered.embeddings)
    image_ids = numbered.split.images["image_id"].astype(int).to_numpy()
    caption_ids = numbered.split.captions["caption_id"].to_numpy()
    scores = images @ captions.T
    return (
        {
            int(one): caption_ids[np.argsort(-row)].tolist()
            for one, row in zip(image_ids, scores, strict=True)
        },
        {
            int(one): image_ids[np.argsort(-row)].tolist()
            for one, row in zip(caption_ids, scores.T, strict=True)
        },
    )


def measures(lists: Mapping[int, list[int]], judged: Lists) -> dict[str, float]:
    """Percentages over the judged queries, by loops over the sorted lists."""
    sums = dict.fromkeys([*(f"R@{k}" for k in KS), "R-precision", "mAP@R"], 0.0)
    for query, answers in judged.items():
        correct = {int(one) for one in answers}
        found = [one in correct for one in lists[int(query)]]
        for k in KS:
            sums[f"R@{k}"] += any(found[:k])
        sums["R-precision"] += sum(found[: len(correct)]) / len(correct)
        sums["mAP@R"] += sum(
            sum(found[: rank + 1]) / (rank + 1) for rank in range(len(correct)) if found[rank]
        ) / len(correct)
    return {name: 100 * value / len(judged) for name, value in sums.items()}


def test_metrics_equal_loops(
    numbered: Subject,
    judged: tuple[Path, Lists, Lists],
    retrieved: tuple[dict[int, list[int]], dict[int, list[int]]],
) -> None:
    folder, by_image, by_caption = judged
    result = JudgedRetrieval(folder, ["eccv"], protocol="full")(numbered)
    for direction, lists, answers in zip(
        result.metrics["eccv"], retrieved, (by_image, by_caption), strict=True
    ):
        expected = measures(lists, answers) | {"queries": len(answers)}
        assert result.metrics["eccv"][direction] == pytest.approx(expected)
    for row in result.metric_rows():
        assert row.interval is not None
        assert row.interval[0] <= row.value <= row.interval[1]
    assert "1 of the answers are not among them" in result.report_sections()[0].note
    assert [row.name for row in result.metric_rows() if row.headline] == [
        "eccv.caption_retrieval.mAP@R",
        "eccv.image_retrieval.mAP@R",
    ]


@pytest.mark.real
def test_metrics_equal_the_published_package(
    numbered: Subject,
    judged: tuple[Path, Lists, Lists],
    retrieved: tuple[dict[int, list[int]], dict[int, list[int]]],
) -> None:
    package = pytest.importorskip("eccv_caption").Metrics()
    folder = judged[0]
    files = [str(folder / f"eccv_{name}.json") for name in ("image_to_caption", "caption_to_image")]
    package.set_eccv_gts(*files)
    package.set_cxc_gts(*files)
    names = ("eccv_r1", "eccv_map_at_r", "eccv_rprecision", "cxc_recalls")
    published = package.compute_all_metrics(*retrieved, target_metrics=names, Ks=KS)
    ours = JudgedRetrieval(folder, ["eccv"], protocol="full")(numbered).metrics["eccv"]
    for direction, side in (("caption_retrieval", "i2t"), ("image_retrieval", "t2i")):
        expected = {"R@1": "eccv_r1", "mAP@R": "eccv_map_at_r", "R-precision": "eccv_rprecision"}
        expected |= {f"R@{k}": f"cxc_r{k}" for k in KS}
        for name, key in expected.items():
            assert ours[direction][name] == pytest.approx(100 * published[key][side])


def test_scores_of_cxc_add_pairs_to_the_own_ones(numbered: Subject, tmp_path: Path) -> None:
    split = numbered.split
    own = {
        str(caption): image
        for caption, image in split.captions[["caption_id", "image_id"]].to_numpy()
    }
    first, other = list(own), split.images["image_id"].tolist()
    rows = ["caption,image,agg_score,sampling_method"]
    for caption, image, score in (
        (first[0], other[3], 3.0),
        (first[0], other[4], 2.99),
        (first[1], other[5], 4.2),
        (first[2], own[first[2]], 2.5),
    ):
        rows.append(
            f"COCO_val2014:sentid:{caption},COCO_val2014_{int(image):012d}.jpg,{score},c2i_intrasim"
        )
    (tmp_path / "sits_test.csv").write_text("\n".join(rows) + "\n")
    evaluator = JudgedRetrieval(tmp_path, ["cxc"], protocol="full")
    by_caption = {caption: [image] for caption, image in own.items()}
    by_caption[first[0]].append(other[3])
    by_caption[first[1]].append(other[5])
    del by_caption[first[2]]
    by_image: Lists = {}
    for caption, images in by_caption.items():
        for image in images:
            by_image.setdefault(image, []).append(caption)
    for name, lists in (("image_to_caption", by_image), ("caption_to_image", by_caption)):
        (tmp_path / f"eccv_{name}.json").write_text(json.dumps(lists))
    both = JudgedRetrieval(tmp_path, protocol="full")(numbered)
    assert both.metrics["cxc"] == both.metrics["eccv"] == evaluator(numbered).metrics["cxc"]
    assert [section.title for section in both.report_sections()] == [
        "Judged retrieval: ECCV Caption",
        "Judged retrieval: CxC",
    ]
    (tmp_path / "sits_test.csv").write_text(rows[0] + "\nCOCO_val2014:sentid:1,COCO_val2014_\n")
    with pytest.raises(ValueError, match="line 2: the row is not complete"):
        evaluator(numbered)


def test_judgments_of_other_images_and_missing_files_are_refused(
    numbered: Subject, tmp_path: Path
) -> None:
    evaluator = JudgedRetrieval(tmp_path, protocol="full")
    with pytest.raises(ValueError, match=r"ECCV Caption needs .*eccv_image_to_caption\.json"):
        evaluator(numbered)
    (tmp_path / "eccv_image_to_caption.json").write_text('{"77": [100]}')
    (tmp_path / "eccv_caption_to_image.json").write_text('{"5": [1]}')
    with pytest.raises(ValueError, match=r"judges 1 images and 1 captions .*, such as 77, 5"):
        evaluator(numbered)
    (tmp_path / "eccv_image_to_caption.json").write_text('{"1": []}')
    with pytest.raises(ValueError, match=r"'1' has \[\], expected a list of at least one id"):
        evaluator(numbered)
    with pytest.raises(ValueError, match="has several folds"):
        JudgedRetrieval(tmp_path, protocol="coco_5fold_1k")


def test_retrieval_reports_precision_of_caption_retrieval(
    subject: Subject,
    numbered: Subject,
    retrieved: tuple[dict[int, list[int]], dict[int, list[int]]],
) -> None:
    own: Lists = {}
    for caption, image in numbered.split.captions[["caption_id", "image_id"]].to_numpy():
        own.setdefault(image, []).append(str(caption))
    expected = measures(retrieved[0], own)
    result = Retrieval()(subject)
    for name in ("R-precision", "mAP@R"):
        assert result.metrics["caption_retrieval"][name] == pytest.approx(expected[name])
        interval = result.metrics["intervals"]["caption_retrieval"][name]
        assert interval["low"] <= expected[name] <= interval["high"]
        assert 0 < result.metrics["chance"]["caption_retrieval"][name] < 100
        assert name not in result.metrics["image_retrieval"]
    table = result.report_sections()[0].blocks[0]
    assert [row[0] for row in table.rows][-2:] == ["R-precision", "mAP@R"]
