"""The search service of ``deploy/`` on a cluster: pods deleted and updated under load, deletions,
releases.

``BIFOCAL_SERVE_IMAGE`` names the image of the service that the nodes can pull; its tests are
skipped without it.
"""

import json
import subprocess
import sys
from typing import Any

import pytest
from cluster import SMALL, Cluster
from search import BETTER, EACH, KEY, MARKS, MODEL, Load, Service, champion

pytestmark = MARKS


def test_the_service_becomes_ready_and_asks_for_a_key(
    cluster: Cluster, registry: Any, service: Service
) -> None:
    assert len(service.each()) >= 2
    assert len(service.models()) == 1
    container = json.loads(service.kubectl("get", "pods", "--output", "json"))["items"][0]["spec"][
        "containers"
    ][0]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    with pytest.raises(AssertionError, match="401"):
        service._client(EACH.replace(KEY, "another"))


def test_no_query_fails_when_a_pod_is_deleted(service: Service) -> None:
    with Load(service):
        pod = service.kubectl("get", "pods", "--output", "name").split()[0]
        service.kubectl("delete", pod)
        service.wait()


def test_no_query_fails_during_an_update(service: Service) -> None:
    with Load(service):
        service.kubectl("rollout", "restart", "deployment/search")
        service.wait()


def test_a_deleted_image_is_in_no_answer_of_any_replica(cluster: Cluster, service: Service) -> None:
    deleted = service.each()[0]["results"][0]["id"]
    call = [sys.executable, "-m", "bifocal", "delete", deleted, "--model", MODEL]
    subprocess.run(call, cwd=cluster.checkout, check=True)
    service.until(lambda answer: deleted not in {result["id"] for result in answer["results"]})


def test_replicas_follow_a_promotion_and_a_rollback(
    cluster: Cluster, registry: Any, service: Service
) -> None:
    previous = champion(registry)
    (before,) = service.models()
    with Load(service):
        run = cluster.submit("--flow", "retrain", *SMALL, *BETTER)
        assert cluster.wait(run)["state"] == "SUCCEEDED"
        assert "promote-2" in cluster.ran(run)
        assert champion(registry) != previous
        service.until(lambda answer: answer["model"] != before)
        # The previous champion's release lacks the new images.
        assert (
            cluster.wait(cluster.submit("--flow", "refresh-previous", *SMALL, *BETTER))["state"]
            == "SUCCEEDED"
        )
        cluster.pipelines("promote", "--rollback", "--reason", "test")
        assert champion(registry) == previous
        version = before.partition(",")[0]  # has another release now
        service.until(lambda answer: answer["model"].startswith(f"{version},"))
