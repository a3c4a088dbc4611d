"""What a run on this machine leaves: its artifacts in one folder, and its decision."""

import shutil
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from bifocal.onnx.files import read_json
from components import catalog
from pipelines.commands.project import chosen_project
from runtime import parameters


def keep_artifacts(folder: Path, values: Mapping[str, Any], steps: Container[str]) -> None:
    """Give a folder with the steps of a run what every run has: parameters, and ``artifacts`` of
    its training."""
    artifacts = folder / "artifacts"
    shutil.rmtree(artifacts, ignore_errors=True)
    artifacts.mkdir()
    (folder / "params.yaml").write_text(parameters.dump_yaml(dict(values)), encoding="utf-8")
    for stage in catalog.pipeline_components(values["pipeline"]):
        for output in stage.outputs:
            step = stage.name.replace("_", "-")
            made = folder / step / output
            if step in steps and made.exists():  # others are of another model
                (artifacts / output).symlink_to(made.resolve())


def decision_sentence(file: Path, flow: str) -> str:
    """Return what the step promote decided, and what to do next."""
    record = read_json(file)
    if "candidate" not in record:
        return "; ".join(record["reasons"])
    metrics, model = record["metrics"], record["policy"]["model"]
    name = f"version {record['candidate']['version']} of {model}"
    if not record["accepted"]:
        project = chosen_project()
        again = f"python -m pipelines run{f' --project {project}' if project else ''} --flow {flow}"
        reasons = "\n".join(f"not promoted: {name}: {reason}" for reason in record["reasons"])
        return f"{reasons}\nAfter a change of the policy, decide again without training: {again}"
    measured = f"recall sum {metrics['candidate.recall_sum']:.1f}"
    if record["champion"]:
        measured += (
            f", {metrics['gain']:+.1f} (at least {metrics['gain.low']:+.1f}) over version "
            f"{record['champion']['version']}"
        )
    images = record["test_set"]["images"]
    verdict = "is the champion now" if record["promoted"] else "is accepted"
    page = f"bifocal serve --model models:/{model}@{record['policy']['champion']}"
    return f"{name} {verdict}: {measured}, on {images} test images\nPage: {page}"
