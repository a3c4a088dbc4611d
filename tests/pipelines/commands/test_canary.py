"""The command on reports of simulated clients, with a real registry and a real promotion."""

import socket
import sys
import threading
from dataclasses import replace
from pathlib import Path

import mlflow
import pytest
from click.testing import CliRunner

from bifocal.datasets import Dataset
from bifocal.durable import write_json
from bifocal.serving.canary import services as module
from bifocal.serving.canary.report import ReleaseIdentity, Report
from bifocal.serving.canary.services import _addresses, read_reports
from pipelines.__main__ import main
from runtime.mlflow.registry import RELEASE_TAG
from tests.bifocal.serving.canary.reports import BAD, GOOD, report_of, serve_reports
from tests.components.cluster.versions import POLICY, decisions, number_of, register
from tests.components.cluster.versions import decide as promote


def run(
    artifacts: Path, *reports: Report, state: str = "running", more: tuple[str, ...] = ()
) -> str:
    """Run the command on the replicas of a service; return its output."""
    with serve_reports(
        [{"state": state, "report": report.to_json()} for report in reports]
    ) as services:
        options = [option for service in services for option in ("--service", service)]
        command = ["canary", *options, "--artifacts", str(artifacts), *more]
        return CliRunner().invoke(main, command, catch_exceptions=False).output


@pytest.fixture
def versions(
    store: str, artifacts: Path, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[int, int]:
    """A champion, and a candidate that finds more on the test images."""
    monkeypatch.setattr("pipelines.policies.load_promotion", lambda path: POLICY)
    found = []
    for name, noise in (("a", 0.6), ("b", 0.1)):
        found.append(register(tmp_path / name, dataset, noise))
        if name == "a":
            promote(artifacts)
        mlflow.MlflowClient().set_model_version_tag(
            POLICY.model, str(found[-1]), RELEASE_TAG, f"digest {found[-1]}"
        )
    return found[0], found[1]


def test_a_candidate_that_is_not_worse_is_promoted_by_the_policy(
    versions: tuple[int, int], artifacts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = report_of(GOOD, GOOD, 1500)
    output = run(artifacts, half)
    assert "wait: 1500 searches of one release, 2000 are needed" in output
    with monkeypatch.context() as patch:
        strict = POLICY.model_copy(update={"size_mb": 1e-6})
        patch.setattr("pipelines.policies.load_promotion", lambda path: strict)
        assert "not promoted: " in run(artifacts, half, half)
    assert number_of(POLICY.champion) == versions[0]
    output = run(artifacts, half, half)  # two replicas
    assert "promoted: version 2 of bifocal" in output, output
    assert "candidate bifocal version 2: 3,000 searches" in output
    assert (number_of(POLICY.champion), number_of(POLICY.previous)) == (versions[1], versions[0])
    tags, records = decisions(versions[1])
    assert (tags["promotion"], tags["promotion.online"]) == ("yes", "promote")
    (online,) = (record for record in records if "verdict" in record)
    assert online["counts_candidate"]["searches"] == (2 * half.counts_candidate.searches).tolist()
    with pytest.raises(ValueError, match="the registry now has another version"):
        run(artifacts, half, half)


def test_counts_of_replicas_that_ended_decide_too(
    versions: tuple[int, int], artifacts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = ("--counts", str(tmp_path / "counts"))
    first = report_of(GOOD, GOOD, 1500)
    for _ in range(2):  # a second look at one process counts its searches once
        assert "wait: 1500 searches of one release, 2000 are needed" in run(
            artifacts, first, more=keep
        )
    assert decisions(versions[1])[0]["promotion.online"] == "wait"
    second = report_of(GOOD, GOOD, 400)  # the process was restarted
    assert "wait: 1900 searches" in run(artifacts, second, more=keep)
    other = replace(
        report_of(BAD, BAD, 400), candidate=ReleaseIdentity("bifocal version 3", 3, "digest 3")
    )
    write_json(tmp_path / "counts" / "other.json", other.to_json())
    looks: list[float] = []
    module = sys.modules["components.cluster.canary"]
    monkeypatch.setattr(module, "sleep", looks.append)
    monkeypatch.setattr(module, "monotonic", lambda: 600.0 * len(looks))
    last = report_of(GOOD, GOOD, 50)  # in the place of the second
    assert "wait: 1950 searches" in run(artifacts, last, more=(*keep, "--wait", "0.5"))
    assert looks == [600.0, 600.0, 600.0]
    output = run(artifacts, replace(last, id="0" * 32), report_of(GOOD, GOOD, 1200), more=keep)
    assert "candidate bifocal version 2: 3,200 searches" in output
    assert "promoted: version 2 of bifocal" in output


def test_a_name_stands_for_all_of_its_addresses() -> None:
    with serve_reports([{"state": "running", "report": report_of(GOOD, GOOD, 100).to_json()}]) as (
        service,
    ):
        port = service.split(":")[2].split("/")[0]
    assert f"http://127.0.0.1:{port}" in _addresses(f"dns+http://localhost:{port}")


def test_replicas_that_end_do_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=lambda: server.accept()[0].close(), daemon=True).start()
        service = f"http://127.0.0.1:{server.getsockname()[1]}"
        report, stopped = read_reports([service], folder=tmp_path)
    assert report is None
    assert stopped is not None
    assert stopped.startswith(f"{service} does not answer: ")

    def find_no_pod(*arguments: object, **options: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", find_no_pod)
    monkeypatch.setattr(module, "getaddrinfo", find_no_pod)
    _, stopped = read_reports(["dns+http://search-replicas:8080"], folder=tmp_path)
    assert stopped is not None
    assert stopped.startswith("http://search-replicas:8080 does not answer: ")


def test_a_worse_candidate_is_withdrawn_despite_its_ranks(
    versions: tuple[int, int], artifacts: Path
) -> None:
    output = run(artifacts, report_of(GOOD, BAD))
    assert output.endswith("withdrawn: version 2 of bifocal\n")
    assert (number_of(POLICY.champion), number_of(POLICY.candidate)) == versions
    tags, (record, withdrawal) = decisions(versions[1])
    assert (tags["promotion"], tags["promotion.online"], record["verdict"]) == (
        "withdrawn",
        "withdraw",
        "withdraw",
    )
    assert withdrawal["decision"].startswith("withdrawn: ")
    (reason,) = promote(artifacts).reasons
    assert reason.startswith("the version was withdrawn: ")
    assert "nothing to decide: gone" in run(artifacts, report_of(GOOD, BAD), state="gone")


def test_services_without_a_comparison_and_wrong_addresses_are_named() -> None:
    for contents, reason in (
        ([None], "without --canary"),
        ([{"a": 1}], "another text than a comparison"),
    ):
        with serve_reports(contents) as services, pytest.raises(ValueError, match=reason):
            CliRunner().invoke(main, ["canary", "--service", services[0]], catch_exceptions=False)
    with pytest.raises(ValueError, match="expected the address of a service"):
        CliRunner().invoke(main, ["canary", "--service", "localhost:8080"], catch_exceptions=False)
