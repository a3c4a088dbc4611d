"""Argo's arithmetic of retries (argo-workflows, workflow/controller/operator.go:1030-1206)."""

import math

import pytest
import yaml

from pipelines.local.retries import RetryStrategy
from tests.pipelines.compiled import compile_text

POLICY = {"maxRetryCount": 3, "backoffDuration": "30s", "backoffFactor": 2.0, "backoffMaxDuration": "600s"}


def test_delays_are_multiplied_by_the_integer_factor() -> None:
    strategy = RetryStrategy.parse({**POLICY, "backoffDuration": "30.9s"})  # KFP drops the fraction
    assert [strategy.delay(attempts, "Failed", 0.0, 0.0) for attempts in (1, 2, 3)] == [(30, ""), (60, ""), (120, "")]
    assert strategy.delay(4, "Failed", 0.0, 0.0) == (0.0, "No more retries left")


def test_the_limit_counts_from_the_start_of_the_first_attempt() -> None:
    strategy = RetryStrategy.parse(POLICY)
    assert strategy.delay(1, "Failed", 100.0, 670.0) == (30.0, "")
    assert strategy.delay(1, "Failed", 100.0, 671.0) == (0.0, "Backoff would exceed max duration limit")
    assert strategy.delay(1, "Failed", 100.0, 701.0) == (0.0, "Max duration limit exceeded")
    assert strategy.deadline(100.0) == 700.0


def test_a_deleted_pod_is_not_retried() -> None:
    assert RetryStrategy.parse(POLICY).delay(1, "Error", 0.0, 1.0)[1].startswith("a deleted pod is not retried")


def test_a_task_without_a_policy_has_no_retries() -> None:
    assert RetryStrategy.parse({}).delay(1, "Failed", 0.0, 1.0) == (0.0, "it has no retries")


def test_a_fraction_as_factor_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"backoffFactor 1.5: Argo accepts integers only"):
        RetryStrategy.parse({**POLICY, "backoffFactor": 1.5})


def test_every_step_of_the_pipeline_has_time_for_its_retries() -> None:
    spec, platform = yaml.safe_load_all(compile_text())
    pods = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    tasks = dict(spec["root"]["dag"]["tasks"])
    for component in spec["components"].values():
        tasks |= component.get("dag", {}).get("tasks", {})
    checked = 0
    for name, task in tasks.items():
        if "retryPolicy" not in task:
            continue
        strategy = RetryStrategy.parse(task["retryPolicy"])
        label = spec["components"][task["componentRef"]["name"]]["executorLabel"]
        end = timeout = float(pods[label]["activeDeadlineSeconds"])
        for attempt in range(1, 1 + strategy.limit):
            wait, reason = strategy.delay(attempt, "Failed", 0.0, end)
            assert not reason, f"{name}, attempt {attempt}: {reason}"
            end += wait + timeout
        assert math.isfinite(strategy.max_duration)
        assert end <= strategy.deadline(0.0), f"{name}: the last attempt is killed before its timeout"
        checked += 1
    assert checked >= 10
