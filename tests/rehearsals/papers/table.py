"""The table of rehearsals, ``rehearsal.yaml``: how each recipe is shortened, and what it must
learn."""

from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

FILE = Path(__file__).with_name("rehearsal.yaml")
BOTH_DIRECTIONS = ("caption_retrieval.R@5", "image_retrieval.R@5")


class Rehearsal(BaseModel):
    """The rehearsal of one recipe of ``recipes/papers/``.

    Attributes:
        shared: groups of settings, in order; later ones win.
        set: values of ``--set`` by their keys, which win over ``shared``.
        headline: the measure that the paper reports, see ``tests.rehearsals.papers.measures``.
        learned: measures whose 95 % interval must lie above their bar, which is three times chance.
        bars: bars in percent above three times chance, for measures of which that is 0.
        branches: branches of the model that train.
        after: recipes whose artifacts this one reads.
        baseline: recipe with the embedding that ``semantic.gain`` compares with; one of ``after``.
        mines: each epoch trains on the examples of the largest loss, so its mean loss need not
            fall.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    headline: str
    shared: tuple[str, ...] = ()
    set: dict[str, Any] = {}
    learned: tuple[str, ...] = BOTH_DIRECTIONS
    bars: dict[str, float] = {}
    branches: tuple[str, ...] = ("image", "text")
    after: tuple[str, ...] = ()
    baseline: str | None = None
    mines: bool = False


def load_table() -> dict[str, Rehearsal]:
    """Return the rehearsal of each recipe; their ``set`` includes the shared settings."""
    content = yaml.safe_load(FILE.read_text())
    shared: dict[str, dict[str, Any]] = content["shared"]
    rows = {}
    for name, row in content["recipes"].items():
        rehearsal = Rehearsal.model_validate(row)
        settings: dict[str, Any] = {}
        for group in ("every", *rehearsal.shared):
            settings |= shared[group]
        rows[name] = rehearsal.model_copy(update={"set": settings | rehearsal.set})
    return rows
