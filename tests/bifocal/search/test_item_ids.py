"""Rows of ids."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bifocal.search import item_ids
from bifocal.search.item_ids import ItemIds


@given(st.lists(st.tuples(st.text(max_size=3), st.booleans()), max_size=20), st.booleans(), st.booleans())
def test_rows_are_the_ones_of_a_dictionary(rows: list[tuple[str, bool]], collide: bool, shared: bool) -> None:
    """Also with ids that have one hash."""
    names, removed = [name for name, _ in rows], [gone for _, gone in rows]
    with pytest.MonkeyPatch.context() as patch:
        if collide:
            patch.setattr(item_ids, "hash", len, raising=False)
        column = pa.chunked_array([names[:7], names[7:]], pa.string())
        ids = ItemIds(column, pa.array(removed, pa.bool_()).to_numpy(False), ItemIds(column) if shared else None)
        present: dict[str, list[int]] = {}
        for row, (name, gone) in enumerate(rows):
            if not gone:
                present.setdefault(name, []).append(row)
        assert list(ids) == names == [ids[row] for row in range(len(ids))]
        assert ids[1:3] == names[1:3]
        assert ids.present == len(list(ids.items())) == removed.count(False)
        assert ids.different == len(present)
        for name in {*names, "missing"}:
            assert ids.row(name) in present.get(name, [None])
        assert ids.row(("x", "y", "z")) is None
