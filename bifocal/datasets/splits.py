"""Splits that are drawn from the training items."""

from collections.abc import Iterable, Mapping
from itertools import islice

import numpy as np


def check_fractions(corpus: str, val: str | float, test: str | float, name: str, unit: str) -> None:
    """Check ``val`` and ``test`` of a reader: each a published subset, called ``name``, or a fraction of train."""
    fractions = [part for part in (val, test) if not isinstance(part, str)]
    if any(fraction < 0 for fraction in fractions) or sum(fractions) >= 1:
        raise ValueError(
            f"{corpus}: val is {val!r} and test is {test!r}; expected {name}, or a fraction of the {unit} of train "
            "in [0, 1); the fractions must sum to less than 1"
        )


def draw_splits(splits: Mapping[str, str], subsets: Mapping[str, str | float], seed: int) -> dict[str, str]:
    """Return every item's split after moving fractions of train to other splits, by the seed and all ids."""
    drawn = dict(splits)
    ids = sorted(item for item, split in splits.items() if split == "train")
    order = np.random.default_rng(seed).permutation(len(ids))
    start = 0
    for split, subset in subsets.items():
        if not isinstance(subset, str):
            end = start + round(subset * len(ids))
            drawn |= {ids[index]: split for index in order[start:end]}
            start = end
    return drawn


def draw_groups(groups: Mapping[str, str], fractions: Mapping[str, float], seed: int) -> dict[str, str]:
    """Return a split for every item, one per group: groups in random order fill the fractions, the rest is train."""
    members: dict[str, list[str]] = {}
    for item in sorted(groups):
        members.setdefault(groups[item], []).append(item)
    names = sorted(members)
    left = [names[index] for index in np.random.default_rng(seed).permutation(len(names))]
    drawn = dict.fromkeys(groups, "train")
    for split, fraction in fractions.items():
        room = round(fraction * len(groups))
        for name in list(left):
            if len(members[name]) <= room:
                drawn |= dict.fromkeys(members[name], split)
                room -= len(members[name])
                left.remove(name)
    return drawn


def draw_counts(ids: Iterable[str], counts: Mapping[str, int], seed: int) -> dict[str, str]:
    """Return the split of ``counts`` drawn items per split, by the seed and the set of ids."""
    items = sorted(ids)
    if sum(counts.values()) > len(items):
        numbers = ", ".join(f"{count} for {split}" for split, count in counts.items())
        raise ValueError(f"{len(items)} images are fewer than the splits need: {numbers}")
    order = iter(np.random.default_rng(seed).permutation(len(items)).tolist())
    return {items[index]: split for split, count in counts.items() for index in islice(order, count)}
