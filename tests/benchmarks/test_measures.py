"""The hash of the metrics that gave a result."""

import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

from benchmarks import render as tables
from benchmarks.common import Result
from benchmarks.measures import measure_hash
from bifocal.version import __version__

FILES = {
    "benchmarks/quality/x.py": "from benchmarks.tools import helper\nfrom bifocal.evaluation import Retrieval\n",
    "benchmarks/tools.py": "from bifocal.metrics import recall\n",
    "bifocal/evaluation/__init__.py": "from bifocal.evaluation.retrieval import Retrieval, Other\n",
    "bifocal/evaluation/retrieval.py": "from bifocal.metrics.ap import precision\nNOTE = 'text'\n",
    "bifocal/metrics/__init__.py": "from bifocal.metrics.ranks import recall\nfrom bifocal.metrics.unused import x\n",
    "bifocal/metrics/ranks.py": "from bifocal.metrics.ties import ties\n\ndef recall(): return ties()\n",
    "bifocal/metrics/ties.py": "def ties(): return 1\n",
    "bifocal/metrics/ap.py": "def precision(): return 2\n",
    "bifocal/metrics/unused.py": "def x(): return 3\n",
}


def hash_of(**changed: str) -> str:
    files = FILES | {
        f"bifocal/{name.replace('__', '/')}.py": text for name, text in changed.items()
    }
    return measure_hash("quality.x", lambda path: files[path].encode() if path in files else None)


@pytest.mark.parametrize("module", ["metrics__ties", "metrics__ap", "metrics__ranks"])
def test_hash_follows_metrics_through_helpers_evaluators_and_packages(module: str) -> None:
    source = FILES[f"bifocal/{module.replace('__', '/')}.py"]
    assert hash_of(**{module: source.replace("return", "return 1 +")}) != hash_of()
    assert hash_of(**{module: f'"""Words."""\n{source}# more words\n'}) == hash_of()


def test_hash_ignores_other_metrics_and_texts_of_evaluators() -> None:
    assert hash_of(metrics__unused="def x(): return 4\n") == hash_of()
    assert (
        hash_of(
            evaluation__retrieval=FILES["bifocal/evaluation/retrieval.py"].replace("text", "note")
        )
        == hash_of()
    )
    assert measure_hash("quality.y", {"benchmarks/quality/y.py": b"import json\n"}.get) == ""


def test_table_marks_values_that_another_measure_gave(tmp_path: Path) -> None:
    name, day = "quality.rank_losses", "2026-11-25"
    results = [
        Result("same", 1.0, date=day, measure=measure_hash(name)),
        Result("other", 2.0, date=day, measure="0123456789ab"),
        Result("not recorded", 3.0, date=day, version=__version__),
        Result("not today's version", 4.0, date=day, version="0.0.1"),
    ]
    file = tmp_path / f"{name}.json"
    file.write_text(json.dumps([asdict(result) for result in results]))
    rows = tables.result_table(file).splitlines()
    lines = [row for row in rows if row.startswith(("| same", "| other", "| not"))]
    assert [f"{day}, before its measure changed" in line for line in lines] == [
        False,
        True,
        False,
        False,
    ]
    assert [f"{day}, version 0.0.1 |" in line for line in lines] == [False, False, False, True]


def test_values_with_the_published_protocol_are_the_published_ones() -> None:
    rows = yaml.safe_load((tables.ROOT / "benchmarks" / "reproduced.yaml").read_text())
    same = [row for row in rows if row["same"] == "yes"]
    assert len(same) >= 5
    for row in same:
        results = tables.read_results(tables.RESULTS / f"{row['benchmark']}.json")
        (ours,) = (result.value for result in results if result.name == row["ours"])
        printed = re.findall(r"\d+(?:\.\d+)?", row["published"])[-1]
        digits = len(printed.partition(".")[2])
        unit = 10.0**-digits if digits else 2e-4  # a difference of 0 is rounding
        assert ours == pytest.approx(float(printed), abs=unit), row["published"]
