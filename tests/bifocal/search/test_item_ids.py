"""Rows of ids."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bifocal.search import item_ids
from bifocal.search.item_ids import ItemIds


@given(st.lists(st.tuples(st.text(max_size=3), st.booleans()), max_size=20), st.booleans())
def test_rows_are_the_ones_of_a_dictionary(rows: list[tuple[str, bool]], collide: bool) -> None:
    """Also with ids that have one hash."""
    names, removed = [name for name, _ in rows], [gone for _, gone in rows]
    with pytest.MonkeyPatch.context() as patch:
        if collide:
            patch.setattr(item_ids, "hash", len, raising=False)
        column = pa.chunked_array([names[:7], names[7:]], pa.string())
        ids, kept = ItemIds(column), ~pa.array(removed, pa.bool_()).to_numpy(False)
        present: dict[str, list[int]] = {}
        for row, (name, gone) in enumerate(rows):
            if not gone:
                present.setdefault(name, []).append(row)
        assert list(ids) == names == [ids[row] for row in range(len(ids))]
        assert ids[1:3] == names[1:3]
        assert ids.repeated(kept) == removed.count(False) - len(present)
        assert ids.repeated() == len(names) - len(set(names))
        for name in {*names, "missing"}:
            assert ids.row(name, kept) == present.get(name, [None])[0]
            assert ids.row(name) == (names.index(name) if name in names else None)
        assert ids.row(("x", "y", "z")) is None
