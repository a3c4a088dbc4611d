"""Step promote: run."""

import json
from pathlib import Path
from typing import Any

from bifocal.progress import log_line
from components.cluster.promote.decide import promote
from components.cluster.promote.spec import ACCEPTED, PromoteParams
from runtime.artifacts import write_json


def run(params: PromoteParams, *, dataset: Path, features: Path, registration: Path, promotion: Path) -> dict[str, Any]:
    """Decide on the version that ``registration`` names and write ``decision.json``; a refusal is not an error."""
    registered = json.loads((registration / "registration.json").read_text())
    policy = params.policy.model_copy(update={"model": registered["model"]})
    decision = promote(policy, dataset, features, number=registered["version"], decide_only=params.decide_only)
    write_json(promotion / "decision.json", decision.record)
    for reason in decision.reasons:
        log_line(f"not promoted: {reason}")
    accepted = json.dumps(decision.accepted)
    return {"promoted": float(decision.promoted), ACCEPTED: accepted, **decision.record["metrics"]}
