"""Human similarity judgments on image triplets: which of two images is more similar to a query image."""

from pathlib import Path

import pandas as pd

TRIPLET = ("query", "first", "second")
VOTES = ("o1", "o2", "o3")
CHOICES = ("first", "second", "neither")


def read_triplets(path: Path) -> pd.DataFrame:
    """Read votes: image ids ``query``, ``first``, ``second``, and counts ``o1``, ``o2``, ``o3`` (neither)."""
    decisions = read_decisions(path)
    if decisions is not None:
        chosen = pd.get_dummies(decisions["choice"]).reindex(columns=list(CHOICES), fill_value=False).astype(int)
        votes = decisions[list(TRIPLET)].join(chosen.set_axis(list(VOTES), axis=1))
        return votes.groupby(list(TRIPLET), sort=False, as_index=False).sum()
    table = _read_csv(path)
    _check_columns(path, table, (*TRIPLET, *VOTES))
    for name in VOTES:
        invalid = ~table[name].str.fullmatch(r"\d+")
        _check_values(path, table[name], invalid, "an integer of at least 0")
    return table[[*TRIPLET, *VOTES]].astype({name: int for name in VOTES})


def read_decisions(path: Path) -> pd.DataFrame | None:
    """Read single decisions: ``query``, ``first``, ``second``, ``user``, ``choice``; None without a column ``user``."""
    table = _read_csv(path)
    if "user" not in table.columns:
        return None
    _check_columns(path, table, (*TRIPLET, "user", "choice"))
    _check_values(path, table["choice"], ~table["choice"].isin(CHOICES), f"one of {', '.join(CHOICES)}")
    _check_values(path, table["user"], table.duplicated([*TRIPLET, "user"]), "one decision of a user on a triplet")
    return table[[*TRIPLET, "user", "choice"]]


def _read_csv(path: Path) -> pd.DataFrame:
    if not path.is_file():
        columns = ", ".join((*TRIPLET, *VOTES))
        raise ValueError(f"{path}: no such file; expected a CSV with the columns {columns}, or with user and choice")
    return pd.read_csv(path, dtype=str, keep_default_na=False)


def _check_columns(path: Path, table: pd.DataFrame, expected: tuple[str, ...]) -> None:
    missing = [name for name in expected if name not in table.columns]
    if missing:
        raise ValueError(f"{path} has no column {', '.join(missing)}; it has {', '.join(table.columns)}")


def _check_values(path: Path, column: "pd.Series[str]", invalid: "pd.Series[bool]", expected: str) -> None:
    if invalid.any():
        row = int(invalid.to_numpy().argmax())
        raise ValueError(f"{path}, line {row + 2}, column {column.name}: {column.iloc[row]!r}, expected {expected}")
