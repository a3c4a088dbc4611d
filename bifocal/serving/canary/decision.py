"""Decision on the candidate of a comparison: promote it, withdraw it, or wait."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le, Lt

from bifocal.durable import plain
from bifocal.serving.canary.report import Metric, Report

Verdict = Literal["promote", "withdraw", "wait"]
Margin = Annotated[float, Ge(0), Le(1)]
Ratio = Annotated[float, Gt(1)]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """When the candidate is promoted or withdrawn; ``canary.yaml`` explains the values."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid", "allow_inf_nan": False}
    searches: Annotated[int, Ge(1)]
    min_searches: Annotated[int, Ge(1)]
    error_rate: Annotated[float, Gt(0), Lt(0.5)]
    max_rises: dict[Literal["errors", "nothing_found"], Margin]
    max_drops: dict[Literal["relevance", "clicks"], Margin]
    max_ratios: dict[Literal["latency_p50", "latency_p99"], Ratio]

    def __post_init__(self) -> None:
        """Raise ``ValueError`` if no condition is left, or the numbers of searches contradict each
        other."""
        if not self.conditions:
            raise ValueError("max_rises, max_drops and max_ratios are empty: name a condition")
        if self.min_searches > self.searches:
            raise ValueError(
                f"min_searches is {self.min_searches}, at most searches, {self.searches}"
            )

    @property
    def conditions(self) -> int:
        """Number of conditions."""
        return len(self.max_rises) + len(self.max_drops) + len(self.max_ratios)

    @property
    def alpha(self) -> float:
        """Error probability of the interval of one condition."""
        return self.error_rate / self.conditions


@dataclass(frozen=True)
class Condition:
    """One condition of the rule."""

    name: str
    harm: float | None  # how much worse the candidate is; of a latency, the ratio minus 1
    interval: tuple[float, float] | None
    limit: float

    @property
    def holds(self) -> bool:
        """Whether a larger harm is ruled out."""
        return self.interval is not None and self.interval[1] <= self.limit

    @property
    def fails(self) -> bool:
        """Whether a larger harm is shown."""
        return self.interval is not None and self.interval[0] > self.limit

    @property
    def text(self) -> str:
        """The condition for people."""
        if self.harm is None or self.interval is None:
            return f"{self.name} was not measured, or by too few clients"
        low, high = (f"{end:+.3g}" for end in self.interval)
        return (
            f"{self.name} is worse by {self.harm:+.3g}, between {low} and {high}; the limit is "
            f"{self.limit:.3g}"
        )


@dataclass(frozen=True)
class Decision:
    """Decision on the candidate."""

    verdict: Verdict
    reasons: list[str]  # to withdraw it, or not to promote it yet
    conditions: list[Condition]

    def record(self) -> dict[str, Any]:
        """Return the decision as JSON."""
        record: dict[str, Any] = plain(self)
        return record


def decide(rule: Rule, report: Report) -> Decision:
    """Withdraw a candidate whose harm exceeds a limit; promote one whose harms are ruled out; at
    any look."""
    conditions = list(
        _conditions(rule, {m.name: m for m in report.metrics(rule.alpha, rule.searches)})
    )
    searches = min(report.counts_champion.searches.sum(), report.counts_candidate.searches.sum())
    failed = [condition.text for condition in conditions if condition.fails]
    if failed and searches >= rule.min_searches:
        return Decision("withdraw", failed, conditions)
    reasons = [condition.text for condition in conditions if not condition.holds]
    needed = rule.min_searches if failed else rule.searches
    if searches < needed:
        reasons.insert(0, f"{searches:.0f} searches of one release, {needed} are needed")
    return Decision("wait" if reasons else "promote", reasons, conditions)


def _conditions(rule: Rule, metrics: dict[str, Metric]) -> Iterator[Condition]:
    rises = [(name, limit, 1.0, 0.0) for name, limit in rule.max_rises.items()]
    drops = [(name, limit, -1.0, 0.0) for name, limit in rule.max_drops.items()]
    ratios = [(name, limit - 1, 1.0, 1.0) for name, limit in rule.max_ratios.items()]
    for name, limit, sign, zero in (*rises, *drops, *ratios):
        change = metrics[name].comparison
        if change is None or change.interval is None:
            yield Condition(name, None, None, limit)
            continue
        low, high = sorted(sign * (end - zero) for end in change.interval)
        yield Condition(name, sign * (change.value - zero), (low, high), limit)
