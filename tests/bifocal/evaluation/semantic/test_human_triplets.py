"""Agreement of similarities with people, and similarities by captions."""

from dataclasses import replace
from math import log, sqrt
from pathlib import Path

import pandas as pd
import pytest
import torch

from bifocal.datasets import Dataset
from bifocal.evaluation.semantic.human_triplets import (
    draw_triplets,
    fisher_similarity,
    generated_similarity,
    meteor_similarity,
    object_similarity,
    read_decisions,
    read_triplets,
    triplet_metrics,
    triplet_rows,
)
from bifocal.metrics import triplet_agreement

FISHER = "bifocal.evaluation.semantic.human_triplets.FISHER"
SMALL_FISHER = {"dim": 8, "centers": 2, "components": 1, "epochs": 1}
HEAD = "query,first,second,o1,o2,o3\n"
USERS = "query,first,second,user,choice\n"


def test_triplet_metrics_agree_with_nearer_image(
    dataset: Dataset, images: torch.Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three triplets of the split and one of another: votes 4 1 0, 0 3 1 and 2 2 2."""
    monkeypatch.setattr(FISHER, SMALL_FISHER)
    split = dataset.split("test")
    ids = list(split.images["image_id"])
    rows = [(0, 1, 2, 4, 1, 0), (3, 4, 5, 0, 3, 1), (6, 7, 8, 2, 2, 2)]
    lines = [f"{ids[q]},{ids[a]},{ids[b]},{o1},{o2},{o3}" for q, a, b, o1, o2, o3 in rows]
    path = tmp_path / "triplets.csv"
    path.write_text(
        "\n".join(["query,first,second,o1,o2,o3", *lines, f"{ids[0]},elsewhere,{ids[1]},1,0,0"])
    )
    mirrored = images.flip(0)
    metrics = triplet_metrics(path, images, dataset, split, 0, with_text=mirrored)

    def agreement(queries: torch.Tensor) -> float:
        shares = [
            (o1 if float(queries[q] @ images[a]) > float(queries[q] @ images[b]) else o2)
            / (o1 + o2 + o3)
            for q, a, b, o1, o2, o3 in rows
        ]
        return 100 * sum(shares) / 3

    assert (metrics["agreement"], metrics["with_text"]) == pytest.approx(
        (agreement(images), agreement(mirrored))
    )
    assert (metrics["triplets"], metrics["left_out"]) == (3, 1)
    for name in ("tf_idf", "fisher", "meteor"):
        assert 0 <= metrics[name] <= 100
    # Either choice of a draw of random scores agrees with one of the two shares of each triplet.
    assert 100 * (0 + 0 + 2 / 6) / 3 < metrics["random"] < 100 * (4 / 5 + 3 / 4 + 2 / 6) / 3
    assert 0 < metrics["random_std"] < 50
    assert triplet_rows(metrics)[0].value == metrics["agreement"]
    # The same votes as single decisions also give the agreement of people with each other.
    decisions = [
        f"{ids[q]},{ids[a]},{ids[b]},{choice} {number},{choice}"
        for q, a, b, *votes in rows
        for choice, count in zip(("first", "second", "neither"), votes, strict=True)
        for number in range(count)
    ]
    path.write_text("\n".join(["query,first,second,user,choice", *decisions]))
    single = triplet_metrics(path, images, dataset, split, 0)
    assert {
        name: single[name] for name in metrics.keys() - {"with_text", "left_out"}
    } == pytest.approx({name: metrics[name] for name in metrics.keys() - {"with_text", "left_out"}})
    assert 0 < single["people"] < 100
    path.write_text("query,first,second,o1,o2,o3\nno,such,image,1,0,0\n")
    with pytest.raises(
        ValueError, match="none of 1 triplets has all of its images in the evaluated split"
    ):
        triplet_metrics(path, images, dataset, split, seed=0)


def test_triplets_are_two_of_the_nearest_images_of_a_query(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bifocal.evaluation.semantic.human_triplets.NEIGHBORS", 4)
    split = dataset.split("test")
    images = torch.nn.functional.normalize(torch.randn(20, 6, dtype=torch.float64), dim=1)
    triplets = draw_triplets(images, split, 20, seed=1)
    ids = list(split.images["image_id"])
    seen = set()
    for query, *chosen in triplets.to_numpy().tolist():
        row = ids.index(query)
        cosine = {
            name: sum(
                a * b for a, b in zip(images[row].tolist(), images[other].tolist(), strict=True)
            )
            for other, name in enumerate(ids)
            if other != row
        }
        assert len(set(chosen)) == 2
        assert set(chosen) <= set(sorted(cosine, key=lambda name: -cosine[name])[:4])
        seen |= {sorted(cosine, key=lambda name: -cosine[name]).index(name) for name in chosen}
    assert (sorted(triplets["query"]), seen) == (sorted(ids), {0, 1, 2, 3})
    assert triplets.equals(draw_triplets(images, split, 20, seed=1))
    with pytest.raises(ValueError, match="21 triplets of 20 images"):
        draw_triplets(images, split, 21, seed=1)


def test_similarities_rank_an_image_with_the_same_captions_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FISHER, SMALL_FISHER)
    captions = {
        0: ["a red dog runs", "green grass"],
        1: ["a red dog runs", "green grass"],
        2: ["two men eat pizza"],
    }
    training = [text for texts in captions.values() for text in texts]
    for similarity in (meteor_similarity(captions), fisher_similarity(training, captions, seed=0)):
        assert similarity(0, 1) == pytest.approx(1)
        assert similarity(0, 2) < 0.9


def test_object_similarity_is_tf_idf_of_the_numbers_of_objects(dataset: Dataset) -> None:
    ids = {name: list(dataset.split(name).images["image_id"]) for name in ("train", "test")}
    counts = {
        **{name: {"dog": 1.0} for name in ids["train"][:9]},
        ids["train"][9]: {"dog": 2.0, "cup": 1.0},
        ids["test"][0]: {"dog": 1.0, "cup": 3.0},
        ids["test"][1]: {"dog": 4.0},
        ids["test"][2]: {"cup": 1.0, "unseen": 7.0},
    }
    rows = [
        (image, "synsets", name, value)
        for image, row in counts.items()
        for name, value in row.items()
    ]
    labels = pd.DataFrame(rows, columns=["image_id", "task", "label", "value"])
    labeled = replace(dataset, labels=labels)
    similarity = object_similarity(labeled, labeled.split("test"))

    documents = {"dog": 10, "cup": 1}  # of 12 training images

    def vector(row: dict[str, float]) -> dict[str, float]:
        weights = {
            name: row.get(name, 0.0) * (log(13 / (1 + count)) + 1)
            for name, count in documents.items()
        }
        norm = sqrt(sum(weight**2 for weight in weights.values()))
        return {name: weight / norm for name, weight in weights.items()}

    for first, second in ((0, 1), (0, 2), (1, 2)):
        one, other = (vector(counts[ids["test"][row]]) for row in (first, second))
        assert similarity(first, second) == pytest.approx(
            sum(one[name] * other[name] for name in documents)
        )
    assert similarity(0, 3) == 0.0  # an image without objects


def test_generated_captions_are_compared_by_tf_idf_of_peoples_captions(
    dataset: Dataset, tmp_path: Path
) -> None:
    """Loops over the words; the weights of words come from the captions of 12 training images."""
    train = dataset.split("train")
    texts = ["red", "blue", "green", "circle", "square", "triangle"]
    captions = pd.DataFrame(
        {
            "caption_id": range(12),
            "image_id": train.images["image_id"],
            "text": [f"{texts[row % 3]} {texts[3 + row % 2]}" for row in range(12)],
        }
    )
    changed = replace(dataset, captions=pd.concat([captions, dataset.split("test").captions]))
    split = changed.split("test")
    ids = list(split.images["image_id"])
    written = {0: ["red circle", "a red square"], 1: ["blue square"], 2: ["unknown"]}
    rows = [(ids[row], text) for row in range(len(ids)) for text in written.get(row, ["green"])]
    file = tmp_path / "generated.csv"
    pd.DataFrame([*rows, ("elsewhere", "red")], columns=["image_id", "text"]).to_csv(
        file, index=False
    )
    similarity = generated_similarity(file, changed, split)

    def idf(images: int) -> float:
        return log(13 / (1 + images)) + 1

    color, shape = idf(4), idf(6)
    first = {"red": 2 * color, "circle": shape, "square": shape}
    norm = sqrt(sum(value**2 for value in first.values())) * sqrt(color**2 + shape**2)
    assert similarity(0, 1) == pytest.approx(shape * shape / norm)
    assert similarity(0, 2) == 0.0
    pd.DataFrame(rows[:2], columns=["image_id", "text"]).to_csv(file, index=False)
    with pytest.raises(ValueError, match=f"has no caption of {len(ids) - 1} images of the split"):
        generated_similarity(file, changed, split)


def test_triplets_are_read_and_give_agreement(tmp_path: Path) -> None:
    path = tmp_path / "triplets.csv"
    path.write_text(HEAD + "007,a,b,4,1,0\n007,NA,c,0,2,2\n")
    table = read_triplets(path)
    # Ids stay strings, even if they look like numbers or NA.
    assert table[["query", "first", "second"]].to_numpy().tolist() == [
        ["007", "a", "b"],
        ["007", "NA", "c"],
    ]
    votes = torch.from_numpy(table[["o1", "o2", "o3"]].to_numpy())
    # 4 of 5 chose a; 2 of 4 chose c, and 2 chose neither.
    assert triplet_agreement(
        torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]), votes
    ) == pytest.approx(65.0)


def test_single_decisions_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "decisions.csv"
    path.write_text(USERS + "q,a,b,u,first\nr,a,b,u,neither\nq,a,b,v,second\nq,a,b,w,first\n")
    decisions = read_decisions(path)
    assert decisions is not None
    assert decisions["choice"].tolist() == ["first", "neither", "second", "first"]
    assert read_triplets(path).to_numpy().tolist() == [
        ["q", "a", "b", 2, 1, 0],
        ["r", "a", "b", 0, 0, 1],
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("query,first,second,o1,o2\n", "has no column o3; it has query"),
        (
            HEAD + "q,a,b,1,2,3\nq,a,b,-1,2,3\n",
            "line 3, column o1: '-1', expected an integer of at least 0",
        ),
        (HEAD + "q,a,b,1,2,\n", "line 2, column o3: ''"),
        (None, "no such file"),
        ("query,first,second,user\nq,a,b,u\n", "has no column choice"),
        (
            USERS + "q,a,b,u,first\nq,a,b,v,both\n",
            "line 3, column choice: 'both', expected one of first, second",
        ),
        (
            USERS + "q,a,b,u,first\nq,a,b,u,second\n",
            "line 3, column user: 'u', expected one decision of a user",
        ),
    ],
)
def test_invalid_triplets_are_rejected(tmp_path: Path, text: str | None, expected: str) -> None:
    path = tmp_path / "triplets.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=expected):
        read_triplets(path)
