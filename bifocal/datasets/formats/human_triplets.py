"""Similarity votes of people on triplets of images: which of two images is more similar to a query image."""

from pathlib import Path

import pandas as pd

COLUMNS = ("query", "first", "second", "o1", "o2", "o3")


def read_triplets(path: Path) -> pd.DataFrame:
    """Read a CSV file of triplets.

    Gordo and Larlus, "Beyond instance-level image retrieval", CVPR 2017, section 3: o1 and o2 people chose the first
    and the second image, o3 people chose neither.

    Returns:
        Columns ``query``, ``first``, ``second`` (image ids, strings) and ``o1``, ``o2``, ``o3`` (counts).

    Raises:
        ValueError: the file or a column is missing, or a count is not an integer of at least 0.
    """
    if not path.is_file():
        raise ValueError(f"{path}: no such file; expected a CSV with the columns {', '.join(COLUMNS)}")
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing:
        raise ValueError(f"{path} has no column {', '.join(missing)}; it has {', '.join(table.columns)}")
    for name in COLUMNS[3:]:
        invalid = ~table[name].str.fullmatch(r"\d+")
        if invalid.any():
            row = int(invalid.to_numpy().argmax())
            raise ValueError(
                f"{path}, line {row + 2}, column {name}: {table[name].iloc[row]!r}, expected an integer of at least 0"
            )
    return table[list(COLUMNS)].astype({name: int for name in COLUMNS[3:]})
