"""The stage train_embedding that starts from the weights of another embedding."""

import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch

from bifocal.features import FeatureWriter
from bifocal.models import load_model
from bifocal.training.initialization.pretrained import FromEmbedding
from components.train_embedding.run import run
from components.train_embedding.spec import TrainEmbeddingParams
from tests.components.train_embedding.conftest import Scened
from tests.components.train_embedding.section import validated


@pytest.fixture(scope="module")
def artifacts(scened: Scened) -> dict[str, Path]:
    """Scenes with random features, which nothing can be learned from."""
    paths = scened(16, 8)
    random = torch.Generator().manual_seed(0)
    ids = [*pd.read_parquet(paths["dataset"] / "images.parquet")["image_id"]]
    with FeatureWriter(
        paths["features"], regions=2, dim=24, metadata={"weights": "a"}, images_per_file=64
    ) as writer:
        for image_id in ids:
            writer.add(str(image_id), torch.randn(2, 24, generator=random).numpy())
    return paths


@pytest.fixture(scope="module")
def first(artifacts: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("first")
    run(validated({"epochs": 1}), **artifacts, embedding=folder)
    return folder


def starting_from(path: Path, **changes: object) -> TrainEmbeddingParams:
    return validated(initialization={"name": "FromEmbedding", "path": str(path)}, **changes)


def test_without_phases_the_embedding_is_transferred_as_it_is(
    artifacts: dict[str, Path], first: Path, tmp_path: Path
) -> None:
    assert run(starting_from(first, phases=[]), **artifacts, embedding=tmp_path) == {
        "best_epoch": 0
    }
    theirs, ours = load_model(first).state_dict(), load_model(tmp_path).state_dict()
    assert all(theirs[name].equal(ours[name]) for name in theirs)
    assert list(pd.read_csv(tmp_path / "history.csv")) == ["phase", "epoch", "loss", "monitor"]


def test_fine_tuning_keeps_the_embedding_unless_it_improves(
    artifacts: dict[str, Path], first: Path, tmp_path: Path
) -> None:
    """Steps that are far too short change no rank."""
    phase = {**starting_from(first).model_dump()["phases"][0], "learning_rate": 1e-12, "epochs": 2}
    metrics = run(starting_from(first, phases=[phase]), **artifacts, embedding=tmp_path)
    history = pd.read_csv(tmp_path / "history.csv")
    assert history["epoch"].tolist() == [0, 1, 2]
    assert history["recall_sum"].nunique() == 1
    assert metrics == {
        "best_epoch": 0,
        "validation_recall_sum": pytest.approx(history["recall_sum"].max()),
    }
    theirs, ours = load_model(first).state_dict(), load_model(tmp_path).state_dict()
    assert all(theirs[name].equal(ours[name]) for name in theirs)


def test_an_initialized_training_that_was_killed_reads_its_weights(
    artifacts: dict[str, Path], first: Path, tmp_path: Path
) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(first, moved)
    out = tmp_path / "out"
    out.mkdir()
    run(starting_from(moved, phases=[]), **artifacts, embedding=out)
    shutil.rmtree(moved)
    (out / "config.json").unlink()
    run(starting_from(moved, phases=[]), **artifacts, embedding=out)
    assert load_model(out).state_dict().keys() == load_model(first).state_dict().keys()


def test_another_architecture_is_refused(
    artifacts: dict[str, Path], first: Path, tmp_path: Path
) -> None:
    model = {**starting_from(first).model_dump()["model"], "dim": 16}
    with pytest.raises(
        ValueError, match=r"has .* and the model to train has .*: build the model of that embedding"
    ):
        run(starting_from(first, phases=[], model=model), **artifacts, embedding=tmp_path)


def test_nothing_to_learn_is_an_error() -> None:
    with pytest.raises(ValueError, match="phases is empty and initialization is null"):
        validated(phases=[])


def test_a_missing_embedding_names_the_folder(artifacts: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        run(starting_from(tmp_path / "nowhere", phases=[]), **artifacts, embedding=tmp_path)
    assert FromEmbedding("x").path == Path("x")
