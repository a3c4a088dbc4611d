"""The events of the weeks, and the measured values of each week."""

from collections.abc import Sequence
from dataclasses import dataclass, field

YEAR = 52


@dataclass(frozen=True)
class Scenario:
    """Weeks of the events, from 1.

    Attributes:
        wrong_rows: a model is trained with captions beside other images.
        drift: first week with images in the new style.
        retraining: a model is trained with all captions so far.
        cut_off: a model is trained with a table that ends early.
        outage: the registry is away.
    """

    weeks: int = YEAR
    wrong_rows: int = 10
    drift: int = 20
    retraining: int = 27
    cut_off: int = 36
    outage: int = 43

    @classmethod
    def shortened(cls, weeks: int) -> "Scenario":
        """Return the same events in fewer weeks, at least 6."""
        events = (cls.wrong_rows, cls.drift, cls.retraining, cls.cut_off, cls.outage)
        return cls(weeks, *(max(1, round(week * weeks / YEAR)) for week in events))

    def styled_share(self, week: int) -> float:
        """Return the share of a week's new images in the new style: 20 % at first, 5 % more each
        week up to 40 %."""
        return 0.0 if week < self.drift else min(0.4, 0.2 + 0.05 * (week - self.drift))


@dataclass
class Measured:
    """Measurements of one week.

    Attributes:
        images: in the release that the service has at the end of the week.
        styled: of the archive's images, in the new style.
        p_images: p-value of the monitor's test of the new images; None without such images.
        crossed: tests that gave a notice.
        queries, failed: of the clients.
        p50, p99: latency in milliseconds.
        model: number of the champion.
    """

    week: int
    images: int
    styled: int
    p_images: float | None
    crossed: Sequence[str]
    queries: int
    failed: int
    p50: float
    p99: float
    model: int


@dataclass(frozen=True)
class Candidate:
    """A trained model.

    Attributes:
        recall_sum: of the candidate, on the test images.
        good: whether it was trained as it should.
    """

    week: int
    name: str
    recall_sum: float
    good: bool
    promoted: bool
    reasons: Sequence[str] = field(default=())
