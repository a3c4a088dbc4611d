"""``python -m pipelines promote`` with tiny ONNX models in a registry with a real sqlite store."""

from pathlib import Path

import mlflow
import pytest
from click.testing import CliRunner

from bifocal.datasets import Dataset
from pipelines.__main__ import main
from runtime.mlflow import roll_back
from tests.components.cluster.versions import POLICY, decide, decisions, number_of, register


@pytest.mark.slow
def test_a_rolled_back_version_is_refused_until_it_is_forced(
    store: str, artifacts: Path, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In version 0.1, the next scheduled promotion undid the rollback."""
    for name, noise in (("a", 0.6), ("b", 0.1)):
        register(tmp_path / name, dataset, noise)
        decide(artifacts)
    mlflow.MlflowClient().set_registered_model_tag(POLICY.model, "promotion.plan", "not json")
    done = CliRunner().invoke(main, ["promote", "--unlock"], catch_exceptions=False)
    assert done.output == "removed the tag promotion.plan\n"
    command = ["promote", "--rollback", "--reason", "wrong answers"]
    done = CliRunner().invoke(main, command, catch_exceptions=False)
    assert done.stdout.splitlines() == ["candidate: version 2", "champion: version 1"]
    assert (
        done.stderr
        == "bifocal promotion, version 1 of bifocal is the champion again: wrong answers\n"
    )
    assert decide(artifacts).reasons == [
        "the version was rolled back to version 1: wrong answers; only a forced promotion "
        "brings it back"
    ]
    assert number_of(POLICY.champion) == 1
    with pytest.raises(
        ValueError, match="no version of bifocal has the alias 'previous': there is no promotion to"
    ):
        roll_back(POLICY.model, champion=POLICY.champion, previous=POLICY.previous, reason="")
    needs_reason = CliRunner().invoke(main, ["promote", "--force"])
    assert "--force needs --reason TEXT" in needs_reason.output
    monkeypatch.setattr("pipelines.policies.load_promotion", lambda path: POLICY)
    command = ["promote", "--artifacts", str(artifacts), "--force", "--reason", "it was the server"]
    done = CliRunner().invoke(main, command, catch_exceptions=False)
    assert "despite: the version was rolled back" in done.output
    assert number_of(POLICY.champion) == 2
    tags = decisions(2)[0]
    assert (tags["promotion"], "promotion.veto" in tags) == ("forced", False)


def test_the_model_of_a_folder_is_not_promoted_as_the_candidate_of_a_colleague(
    store: str, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = register(tmp_path / "own", dataset, 0.1)
    register(tmp_path / "theirs", dataset, 0.2)
    monkeypatch.setattr("pipelines.policies.load_promotion", lambda path: POLICY)
    done = CliRunner().invoke(main, ["promote", "--artifacts", str(tmp_path / "own")])
    assert "the candidate is version 2 of bifocal, not the model of" in str(done.exception)
    assert f"which is version {own}: choose one by --version" in str(done.exception)
    assert number_of(POLICY.champion) is None


def test_promote_and_rollback_explain_an_invalid_server_address(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "localhost:5000")
    for options in ([], ["--rollback"]):
        with pytest.raises(
            OSError,
            match="MLFLOW_TRACKING_URI is localhost:5000, which is not an address of MLflow",
        ):
            CliRunner().invoke(main, ["promote", *options], catch_exceptions=False)
