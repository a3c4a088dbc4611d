"""Whether trained heads gain over the contrastive model below them; if not, that model is to be shipped unchanged."""

from dataclasses import replace

import pandas as pd

from bifocal.evaluation.rank_tables import ZERO_SHOT
from bifocal.promotion.checks import Check, gain_check
from bifocal.promotion.comparison import RETRIEVAL, join_queries

NAME = "zero_shot"
ANSWER = "ship the contrastive model unchanged: the initialization ZeroShot without any phase of training registers it"


def zero_shot_check(
    ranks: pd.DataFrame, image_ids: set[str], ks: list[int], min_gain: float, alpha: float, seed: int
) -> Check | None:
    """Check for a recall sum more than ``min_gain`` above the contrastive model below; None without such ranks."""
    compared = ranks[ranks["image_id"].isin(image_ids)]
    floor = compared[compared["direction"].str.startswith(ZERO_SHOT)]
    if not len(floor):
        return None
    floor = floor.assign(direction=floor["direction"].str.removeprefix(ZERO_SHOT))
    try:
        queries = join_queries(compared[compared["direction"].isin(RETRIEVAL)], floor)
    except ValueError as error:
        return Check(NAME, f"the gain over the zero-shot model was not measured: {error}", limit=min_gain)
    check = gain_check(queries, ks, min_gain, alpha, seed, NAME)
    if len(queries) == len(floor) and (queries["rank_current"] == queries["rank_reference"]).all():
        return replace(check, reason="")
    return check if check.passed else replace(check, reason=f"over the zero-shot model, {check.reason}; {ANSWER}")
