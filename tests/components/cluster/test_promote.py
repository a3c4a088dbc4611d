"""Promotion of tiny ONNX models in a registry with a real sqlite store, by the step."""

import json
from dataclasses import replace
from pathlib import Path

import mlflow
import pytest

from bifocal.datasets import Dataset
from bifocal.durable import write_json
from bifocal.promotion.exported_model import ExportedModel
from components.cluster.promote import run
from components.cluster.steps import PromoteParams
from runtime.artifacts import hash_files
from runtime.mlflow import (
    RELEASE_TAG,
    VETO,
    alias_lock,
    get_version,
    reuse_version,
    roll_back,
    version_tags,
)
from runtime.mlflow.registry import DELETED_TAG
from runtime.mlflow.retention import previous_files
from tests.bifocal.promotion.tiny_models import decide as assess_tiny
from tests.bifocal.promotion.tiny_models import pointing, tiny_model, write_evaluation, write_model
from tests.components.cluster.versions import POLICY, decide, decisions, number_of, register
from tests.runtime.mlflow.kills import lose_run
from tests.runtime.notice_servers import web_hook


def test_promotion_moves_the_aliases_and_logs_every_decision(
    store: str, artifacts: Path, dataset: Dataset, tmp_path: Path
) -> None:
    first = register(tmp_path / "a", dataset, 0.6)
    assert decide(artifacts).promoted
    assert (number_of(POLICY.champion), number_of(POLICY.previous)) == (first, None)
    assert decide(artifacts).reasons == ["version 1 already is the champion"]
    second = register(tmp_path / "b", dataset, 0.1)
    assert decide(artifacts).reasons == []
    assert (number_of(POLICY.champion), number_of(POLICY.previous)) == (second, first)
    third = register(tmp_path / "c", dataset, 0.3)
    assert not decide(artifacts).promoted
    assert (number_of(POLICY.champion), number_of(POLICY.previous)) == (second, first)
    tags, (record,) = decisions(third)
    assert tags["promotion"] == "no"
    assert "more than 1 is required" in tags["promotion.reasons"]
    assert record["metrics"]["gain"] < 0
    shown = {"promotion", "promotion.champion", "promotion.reasons"}
    assert {tag for tag in tags if tag.startswith("promotion")} == shown
    assert record["champion"]["version"] == second
    known = {"git_commit": "c0ffee", "hash.onnx": tags["hash.onnx"]}
    assert record["candidate"] == {
        "version": third,
        "run_id": record["candidate"]["run_id"],
        **known,
    }
    assert record["test_set"]["images"] == 50
    assert record["policy"] == json.loads(POLICY.model_dump_json())
    assert {check["name"] for check in record["checks"]} >= {
        "veto",
        "commit",
        "gain",
        "drop.pointing",
        "parity",
    }
    assert decisions(second)[0]["promotion"] == "yes"


def test_the_step_promotes_the_registered_version_and_succeeds_when_it_is_refused(
    store: str, artifacts: Path, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with web_hook() as (address, notices):
        monkeypatch.setenv("BIFOCAL_NOTICE_URL", address)
        _promote_and_refuse(artifacts, dataset, tmp_path)
    promoted, refused = notices
    assert promoted == "bifocal promotion, version 1 of bifocal is the champion now, the first one"
    assert refused.startswith("bifocal promotion, version 2 of bifocal was not promoted: ")
    assert "more than 1 is required" in refused


def _promote_and_refuse(artifacts: Path, dataset: Dataset, tmp_path: Path) -> None:
    params = PromoteParams(
        seed=1, policy=POLICY.model_copy(update={"model": "another name"}), decide_only=False
    )
    for name, noise, promoted in (("a", 0.1, 1.0), ("b", 0.6, 0.0)):
        version = register(tmp_path / name, dataset, noise)
        (tmp_path / name / "out").mkdir()
        registration = {"model": POLICY.model, "version": version, "alias": POLICY.candidate}
        (tmp_path / name / "registration.json").write_text(json.dumps(registration))
        metrics = run(
            params,
            dataset=artifacts / "dataset",
            features=artifacts / "features",
            registration=tmp_path / name,
            promotion=tmp_path / name / "out",
        )
        assert metrics["promoted"] == promoted
        assert metrics["accepted"] == ("true" if promoted else "false")
        assert json.loads((tmp_path / name / "out/decision.json").read_text())["promoted"] == bool(
            promoted
        )
    assert metrics["gain"] < 0


@pytest.mark.parametrize("commit", ["c0ffee-dirty", "unknown"])
def test_models_of_uncommitted_code_are_refused_unless_allowed(
    store: str, artifacts: Path, dataset: Dataset, tmp_path: Path, commit: str
) -> None:
    register(tmp_path, dataset, 0.1, commit=commit)
    for tag in ("git_commit", "hash.onnx"):  # anybody may edit a tag
        mlflow.MlflowClient().set_model_version_tag(POLICY.model, "1", tag, "c0ffee")
    (reason,) = decide(artifacts, policy_file="projects/toys/promotion.yaml").reasons
    assert reason.startswith(
        f"no commit holds the code of the model ({commit}): commit, train again"
    )
    assert "(it passes with 'allow_dirty: true' in projects/toys/promotion.yaml: " in reason
    assert decide(artifacts, POLICY.model_copy(update={"allow_dirty": True})).promoted


def test_the_graphs_that_services_load_are_ranked(
    store: str, artifacts: Path, dataset: Dataset, tmp_path: Path
) -> None:
    register(tmp_path / "a", dataset, 0.3)
    decide(artifacts)
    register(tmp_path / "b", dataset, 0.6)
    write_model(tmp_path / "b/model", len(dataset.images), 0.1)  # MLmodel names the folder onnx
    (reason,) = decide(artifacts).reasons
    assert reason.startswith("the gain in the recall sum is -")
    served = tmp_path / "b/model/onnx"
    write_model(served, len(dataset.images), 0.1)
    changed = "text_encoder.onnx of version 2 of bifocal is missing, unknown or damaged"
    assert decide(artifacts).reasons[0].startswith(f"version 2 cannot be evaluated: {changed}")
    files = hash_files(served, without=("manifest.json",))
    write_json(served / "manifest.json", {"schema_version": 1, "files": files})
    changed = "manifest.json of version 2 of bifocal has another hash than hash.onnx of its run"
    assert decide(artifacts).reasons[0].startswith(f"version 2 cannot be evaluated: {changed}")


def test_heads_above_a_contrastive_model_need_its_ranks(dataset: Dataset, tmp_path: Path) -> None:
    model = tiny_model(tmp_path, dataset, 0.1)
    assert assess_tiny(dataset, model).reasons == []
    (tmp_path / "onnx/contrastive.json").write_text("{}")
    (reason,) = assess_tiny(dataset, model).reasons
    assert reason.startswith(
        "the ranks of the zero-shot model are missing; evaluate with Baselines in"
    )


@pytest.mark.slow
def test_comparisons_use_up_the_test_set(
    store: str, artifacts: Path, dataset: Dataset, tmp_path: Path
) -> None:
    register(tmp_path / "a", dataset, 0.2)
    decide(artifacts)
    levels = []
    for week in range(5):
        register(tmp_path / f"week {week}", dataset, 0.3 + week / 100)
        levels.append(decide(artifacts).record["level"])
        assert decide(artifacts).record["level"] == levels[-1], (
            "a repeated comparison spends nothing"
        )
        for tag in filter(lambda tag: tag.startswith("promotion"), decisions(week + 2)[0]):
            mlflow.MlflowClient().delete_model_version_tag(POLICY.model, str(week + 2), tag)
    assert levels == [0.0125, 0.0125, 0.0125, 0.0125, 0.0]
    assert any(
        reason.startswith("the test set is used up: 4 comparisons")
        for reason in decide(artifacts).reasons
    )


def test_a_version_without_its_model_is_an_error_also_by_force(
    store: str, artifacts: Path, dataset: Dataset, tmp_path: Path
) -> None:
    number = register(tmp_path / "a", dataset, 0.1)
    mlflow.MlflowClient().set_model_version_tag(
        POLICY.model, str(number), DELETED_TAG, "2026-01-04T00:00:00+00:00"
    )
    with pytest.raises(
        FileNotFoundError,
        match=r"the model of version 1 of bifocal was deleted by .* on 2026-01-04",
    ):
        decide(artifacts, force="the last one")
    assert number_of(POLICY.champion) is None


def test_artifacts_of_another_training_are_an_error(
    store: str, artifacts: Path, dataset: Dataset, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="has the alias 'candidate': run register_model first"):
        decide(artifacts)
    images = dataset.images.assign(sha256="0" * 64)
    register(tmp_path / "a", replace(dataset, images=images), 0.1)
    with pytest.raises(
        ValueError,
        match=r"dataset has the hash .*, the candidate's dataset has none: give the artifact",
    ):
        decide(artifacts)
    with pytest.raises(ValueError, match="bifocal has no version 7"):
        decide(artifacts, number=7)


def test_registration_of_a_registered_model_replaces_its_evaluation(
    store: str, artifacts: Path, dataset: Dataset, tmp_path: Path
) -> None:
    """Otherwise a model without a table that promotion needs, or on a renewed test split, could
    never be compared."""
    number = register(tmp_path / "a", dataset, 0.1)
    mlflow.MlflowClient().set_model_version_tag(POLICY.model, str(number), "hash.onnx", "0123")
    write_evaluation(tmp_path / "new", dataset, pointing(dataset, 0.9))
    assert reuse_version(POLICY.model, POLICY.candidate, "0123", tmp_path / "new", "4567") == number
    version = get_version(POLICY.model, POLICY.candidate)
    assert version is not None
    evaluation = version.download_evaluation("", tmp_path / "download")
    assert ExportedModel.read(tmp_path / "a/onnx", evaluation).ranks[
        "rank"
    ].mean() == pytest.approx(0.1)
    assert version_tags(version)["hash.metrics"] == "4567"
    assert reuse_version(POLICY.model, POLICY.candidate, "89ab", tmp_path / "new", "4567") is None


def test_a_champion_of_an_earlier_version_is_replaced_by_force(
    store: str, artifacts: Path, dataset: Dataset, tmp_path: Path
) -> None:
    register(tmp_path / "a", dataset, 0.6)
    decide(artifacts)
    previous = Path(
        mlflow.MlflowClient().get_model_version(POLICY.model, "1").source.removeprefix("file://")
    )
    (previous / "onnx/parity.csv").unlink()
    register(tmp_path / "b", dataset, 0.1)
    (reason,) = decide(artifacts).reasons
    assert reason.startswith(
        "version 1 cannot be evaluated: parity.csv of version 1 of bifocal is missing"
    )
    assert decide(artifacts, force="evaluated by hand").promoted


def test_deleted_runs_of_versions_block_neither_registration_nor_forced_promotion(
    store: str, artifacts: Path, dataset: Dataset, tmp_path: Path
) -> None:
    client = mlflow.MlflowClient()
    for name, noise in (("a", 0.6), ("b", 0.1)):
        register(tmp_path / name, dataset, noise)
    decide(artifacts, number=1, force="the first")
    client.set_model_version_tag(POLICY.model, "2", VETO, "withdrawn")
    lose_run(client.get_model_version(POLICY.model, "1").run_id)
    veto, reason = decide(artifacts, force="see", decide_only=True).reasons
    assert veto.startswith("the version was withdrawn")
    assert reason.startswith(
        "version 1 cannot be evaluated: version 1 of bifocal has no evidence any more: its run"
    )
    assert decide(artifacts).reasons == [veto]
    assert number_of(POLICY.champion) == 1
    assert decide(artifacts, force="by hand").promoted
    assert (number_of(POLICY.champion), number_of(POLICY.previous)) == (2, 1)
    lose_run(client.get_model_version(POLICY.model, "2").run_id)
    client.set_model_version_tag(POLICY.model, "2", "hash.onnx", "0123")
    assert (
        reuse_version(POLICY.model, POLICY.candidate, "0123", tmp_path / "b/evidence", "4567")
        is None
    )
    with alias_lock(POLICY.model, 0):
        roll_back(POLICY.model, champion=POLICY.champion, previous=POLICY.previous, reason="")
    assert number_of(POLICY.champion) == 1
    assert VETO in client.get_model_version(POLICY.model, "2").tags
    assert previous_files(POLICY.model, 1) == []


def test_a_decision_alone_moves_no_alias_and_the_promotion_after_the_release_spends_nothing_more(
    store: str, artifacts: Path, dataset: Dataset, tmp_path: Path
) -> None:
    for name, noise in (("a", 0.6), ("b", 0.1)):
        number = register(tmp_path / name, dataset, noise)
        decided = decide(artifacts, decide_only=True)
        assert (decided.accepted, decided.promoted) == (True, False)
        assert decisions(number)[0]["promotion"] == "accepted"
        assert number_of(POLICY.champion) == (None if number == 1 else 1)
        promoted = decide(artifacts)
        assert promoted.promoted
        assert promoted.record["level"] == decided.record["level"]
    assert number_of(POLICY.previous) == 1


def test_a_champion_with_a_release_is_neither_replaced_by_a_version_without_one_nor_rolled_back_to_it(
    store: str, artifacts: Path, dataset: Dataset, tmp_path: Path
) -> None:
    client = mlflow.MlflowClient()
    register(tmp_path / "a", dataset, 0.6)
    assert decide(artifacts).promoted
    client.set_model_version_tag(POLICY.model, "1", RELEASE_TAG, "abc")
    register(tmp_path / "b", dataset, 0.1)
    assert decide(artifacts, decide_only=True).accepted
    reason = (
        "version 2 has no release, the champion has one: the flow retrain embeds the images of an "
        "accepted version; python -m pipelines release adds those of a run"
    )
    assert decide(artifacts).reasons == [reason]
    assert number_of(POLICY.champion) == 1
    client.set_model_version_tag(POLICY.model, "2", RELEASE_TAG, "def")
    assert decide(artifacts).promoted
    client.delete_model_version_tag(POLICY.model, "1", RELEASE_TAG)
    with pytest.raises(
        ValueError, match="version 1 of bifocal has no release, so a service could not load it"
    ):
        roll_back(POLICY.model, champion=POLICY.champion, previous=POLICY.previous, reason="")
    assert number_of(POLICY.champion) == 2
