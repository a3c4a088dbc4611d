"""Plot of the year."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.simulated_year.weeks import Candidate, Measured, Scenario

LOW = 100
"""Recall sum up to which the name of a candidate is above its mark."""
GOOD, BAD, NOTICE = "tab:green", "tab:red", "tab:orange"


def plot_year(
    file: Path, weeks: Sequence[Measured], candidates: Sequence[Candidate], scenario: Scenario
) -> None:
    """Write the plot: collection, monitor, models and queries against the week."""
    figure = Figure(figsize=(9, 9.5), layout="constrained")
    rows = figure.subplots(4, 1, sharex=True)
    plot_collection(rows[0], weeks)
    plot_monitor(rows[1], weeks)
    plot_models(rows[2], candidates)
    plot_queries(rows[3], weeks)
    for axes in rows:
        axes.axvline(scenario.drift, color="gray", linestyle=":", zorder=0)
        axes.axvspan(scenario.outage - 0.5, scenario.outage + 0.5, color="0.85", zorder=0)
        axes.margins(x=0.01)
    for week, text in ((scenario.drift, "new style"), (scenario.outage, "no registry")):
        place = {"xy": (week, 1.02), "xycoords": rows[0].get_xaxis_transform()}
        rows[0].annotate(text, **place, ha="center", va="bottom", fontsize=9)
    rows[-1].set_xlabel("week")
    queries = rows[3].get_legend().get_title().get_text()
    figure.savefig(file, dpi=110, metadata={"Description": queries})


def plot_collection(axes: Axes, weeks: Sequence[Measured]) -> None:
    """Draw the number of images in the service, and of the archive's images in the new style."""
    numbers = [week.week for week in weeks]
    axes.step(numbers, [week.images for week in weeks], where="mid", label="images in the service")
    axes.step(
        numbers,
        [week.styled for week in weeks],
        where="mid",
        color=NOTICE,
        label="drawn in the new style",
    )
    axes.set_ylabel("images")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, loc="upper left")


def plot_monitor(axes: Axes, weeks: Sequence[Measured]) -> None:
    """Draw the p-value of the test of the new images; filled circles are notices."""
    tested = [
        (week.week, week.p_images, "images" in week.crossed)
        for week in weeks
        if week.p_images is not None
    ]
    for crossed, fill, label in (
        (False, "none", "no notice of images"),
        (True, NOTICE, "notice of images"),
    ):
        points = [(week, p_value) for week, p_value, is_crossed in tested if is_crossed == crossed]
        x, y = zip(*points, strict=True) if points else ((), ())
        axes.scatter(x, y, facecolors=fill, edgecolors=NOTICE, label=label)
    others = [week.week for week in weeks if set(week.crossed) - {"images"}]
    axes.scatter(
        others, [1.6] * len(others), marker="v", color="tab:blue", label="notice of another test"
    )
    axes.set_yscale("log")
    axes.set_ylabel("p-value of the test\nof the new images")
    axes.legend(frameon=False, loc="lower left")


def plot_models(axes: Axes, candidates: Sequence[Candidate]) -> None:
    """Draw the recall sum of each candidate."""
    for candidate in candidates:
        color, marker = (GOOD, "o") if candidate.promoted else (BAD, "X")
        axes.scatter(
            candidate.week, candidate.recall_sum, color=color, marker=marker, s=70, clip_on=False
        )
        verdict = "promoted" if candidate.promoted else "refused"
        above = candidate.recall_sum <= LOW
        axes.annotate(
            f"{candidate.name}: {verdict}",
            (candidate.week, candidate.recall_sum),
            xytext=(9, 5 if above else -16),
            textcoords="offset points",
            va="baseline",
            fontsize=9,
            color=color,
        )
    axes.set_ylabel("recall sum, %")
    axes.set_ylim(0, 600)


def plot_queries(axes: Axes, weeks: Sequence[Measured]) -> None:
    """Draw the latency of the queries, and the number of failed ones."""
    numbers = [week.week for week in weeks]
    axes.plot(numbers, [week.p50 for week in weeks], label="median")
    axes.plot(numbers, [week.p99 for week in weeks], label="99th percentile")
    axes.set_yscale("log")
    axes.set_ylim(top=6 * axes.get_ylim()[1])  # room for the legend
    axes.set_ylabel("latency, ms")
    failed, total = sum(week.failed for week in weeks), sum(week.queries for week in weeks)
    title = f"{total:,} queries, {failed} failed"
    axes.legend(frameon=False, loc="upper left", title=title, alignment="left", ncols=2)
