"""The table of a rehearsal, for the terminal, a file and docs/records/rehearsal.md."""

from collections.abc import Sequence
from pathlib import Path

from tests.rehearsals.papers.outcome import Outcome

COLUMNS = (
    "recipe",
    "headline",
    "value",
    "95 % from",
    "chance",
    "learned",
    "loss",
    "gradients",
    "minutes",
)
BEGIN, END = "<!-- rehearsal: written by make rehearse -->", "<!-- end of the rehearsal -->"
NOT_LEARNED = "not learned: "
NOTE = (
    "Test images of miniature corpora, in percent; correlations times 100. Learned: low end of "
    "the 95 % interval and the bar that it must exceed; a recipe that has not learned says so. "
    "The bar is three times chance; for the correlations of memorability, whose chance is 0, "
    "it is the published value. Two measures are differences, whose chance is 0: "
    "semantic.above_random is NDCG minus a random order's NDCG, semantic.gain is NDCG minus "
    "the NDCG of the embedding before training. Loss: first and last epoch of each phase. "
    "Gradients: ratio of the gradient norms of the two branches at the first steps. Minutes: "
    "of one core; stages that recipes share count for each."
)


def markdown_table(outcomes: Sequence[Outcome]) -> str:
    """Return the table in Markdown."""
    rows = [COLUMNS, ["---"] * len(COLUMNS), *(_cells(outcome) for outcome in outcomes)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def write_into(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Replace the table in a page, between its two marks; recipes that have not learned are rows of
    it, too.

    Raises:
        ValueError: the page has no marks.
    """
    text = path.read_text()
    if BEGIN not in text or END not in text:
        raise ValueError(f"{path} has no {BEGIN} followed by {END}")
    before, rest = text.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    path.write_text(f"{before}{BEGIN}\n\n{markdown_table(outcomes)}\n\n{NOTE}\n\n{END}{after}")


def _cells(outcome: Outcome) -> list[str]:
    if outcome.headline not in outcome.measures:
        return [outcome.recipe, outcome.headline, *["-"] * 3, NOT_LEARNED + "an error", *["-"] * 3]
    headline = outcome.measures[outcome.headline]
    lows = {name: outcome.measures[name].low for name in outcome.bars}
    learned = [
        f"{name} {lows[name]:.1f} {'>' if lows[name] > bar else '≤'} {bar:.1f}"
        for name, bar in outcome.bars.items()
    ]
    return [
        outcome.recipe,
        outcome.headline,
        *(f"{value:.1f}" for value in headline),
        (NOT_LEARNED if outcome.problems else "") + ", ".join(learned),
        ", ".join(f"{first:.3g} to {last:.3g}" for first, last in outcome.losses) or "-",
        "-" if outcome.gradient_ratio is None else f"{outcome.gradient_ratio:.1f}",
        f"{outcome.minutes:.1f}",
    ]
