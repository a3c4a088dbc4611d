"""Reports of simulated clients."""

import numpy as np

from bifocal.serving.canary.counts import GROUPS
from bifocal.serving.canary.report import Release, Report

GOOD, BAD = {"relevance": 0.8, "nothing": 0.02, "ms": 10.0}, {"relevance": 0.6, "nothing": 0.2, "ms": 10.0}
RELEASES = [Release(f"bifocal version {number}", number, f"digest {number}") for number in (1, 2)]


def report_of(champion: dict[str, float], candidate: dict[str, float], searches: int = 3000) -> Report:
    """Return the report of simulated clients."""
    generator, report = np.random.default_rng(0), Report("canary", 0.5, *RELEASES)
    for counts, truth in ((report.counts_champion, champion), (report.counts_candidate, candidate)):
        for group in generator.integers(0, GROUPS, searches):
            if generator.random() < truth.get("errors", 0.0):
                counts.add_error(group)
                continue
            found = generator.random() >= truth["nothing"]
            relevance = min(1.0, truth["relevance"] + 0.1 * generator.normal()) if found else 0.0
            counts.add_answer(group, 10 * found, relevance, truth["ms"] / 1000 * generator.lognormal(0, 0.3))
            if generator.random() < truth.get("clicks", 0.0):
                counts.add_click(group)
    return report
