"""What people said of triplets of images: which of two is more like a query."""

from pathlib import Path

import pandas as pd

COLUMNS = ("query", "first", "second", "o1", "o2", "o3")


def read_triplets(path: Path) -> pd.DataFrame:
    """Read a CSV file of triplets.

    Gordo and Larlus, "Beyond instance-level image retrieval", CVPR 2017, section 3: o1 and o2 people chose the first
    and the second image, o3 neither.

    Returns:
        columns ``query``, ``first``, ``second`` (image ids, strings) and ``o1``, ``o2``, ``o3`` (counts).

    Raises:
        ValueError: there is no such file, a column is missing, or a count is no whole number from 0.
    """
    if not path.is_file():
        raise ValueError(f"triplets need {path}: no such file; it must have the columns {', '.join(COLUMNS)}")
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing:
        raise ValueError(f"{path} has no column {', '.join(missing)}; it has {', '.join(table.columns)}")
    for name in COLUMNS[3:]:
        wrong = ~table[name].str.fullmatch(r"\d+")
        if wrong.any():
            line = int(wrong.to_numpy().argmax())
            raise ValueError(
                f"{path}, line {line + 2}, column {name}: {table[name].iloc[line]!r}, expected a count from 0"
            )
    return table[list(COLUMNS)].astype({name: int for name in COLUMNS[3:]})
