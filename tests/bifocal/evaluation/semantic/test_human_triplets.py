"""Agreement with people on triplets of images."""

from pathlib import Path

import pytest
import torch

from bifocal.datasets import Dataset
from bifocal.evaluation.semantic.human_triplets import draw_triplets, triplet_metrics, triplet_rows

FISHER = "bifocal.evaluation.semantic.caption_similarity.FISHER"
SMALL_FISHER = {"dim": 8, "centers": 2, "components": 1, "epochs": 1}


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
    path.write_text("\n".join(["query,first,second,o1,o2,o3", *lines, f"{ids[0]},elsewhere,{ids[1]},1,0,0"]))
    mirrored = images.flip(0)
    metrics = triplet_metrics(path, images, dataset, split, 0, with_text=mirrored)

    def agreement(queries: torch.Tensor) -> float:
        shares = [
            (o1 if float(queries[q] @ images[a]) > float(queries[q] @ images[b]) else o2) / (o1 + o2 + o3)
            for q, a, b, o1, o2, o3 in rows
        ]
        return 100 * sum(shares) / 3

    assert (metrics["agreement"], metrics["with_text"]) == pytest.approx((agreement(images), agreement(mirrored)))
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
    assert {name: single[name] for name in metrics.keys() - {"with_text", "left_out"}} == pytest.approx(
        {name: metrics[name] for name in metrics.keys() - {"with_text", "left_out"}}
    )
    assert 0 < single["people"] < 100
    path.write_text("query,first,second,o1,o2,o3\nno,such,image,1,0,0\n")
    with pytest.raises(ValueError, match="none of 1 triplets has all of its images in the evaluated split"):
        triplet_metrics(path, images, dataset, split, seed=0)


def test_triplets_are_two_of_the_nearest_images_of_a_query(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bifocal.evaluation.semantic.human_triplets.NEIGHBORS", 4)
    split = dataset.split("test")
    images = torch.nn.functional.normalize(torch.randn(20, 6, dtype=torch.float64), dim=1)
    triplets = draw_triplets(images, split, 20, seed=1)
    ids = list(split.images["image_id"])
    seen = set()
    for query, *chosen in triplets.to_numpy().tolist():
        row = ids.index(query)
        cosine = {
            name: sum(a * b for a, b in zip(images[row].tolist(), images[other].tolist(), strict=True))
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
