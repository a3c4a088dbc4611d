"""Changes of an index: items that are removed and added."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bifocal.search.index.index import SearchIndex
from bifocal.search.vectors import Vectors, unit_vectors


def remove_items(index: SearchIndex, item_ids: Sequence[str]) -> SearchIndex:
    """Return the index without some items.

    Their rows stay until ``bifocal.search.index.build.rebuilt``. ``SearchIndex.write`` writes zeros in place of their
    vectors, and nulls in place of their metadata.

    Raises:
        ValueError: the index does not have an item.
    """
    removed = index.removed.copy()
    removed[[index.row(item_id) for item_id in item_ids]] = True
    return SearchIndex(
        index.items, index.vectors, index.bias, index.description, index.approximate, removed, index.calibration
    )


def add_items(index: SearchIndex, items: pa.Table, vectors: Any, bias: NDArray[Any] | None = None) -> SearchIndex:
    """Return the index with more items, whose rows follow those of the index.

    Args:
        items: table with the columns of the index; a missing column is null.
        vectors: (n, d) by the model of the index; they are normalized.
        bias: (n,), needed if the index has biases.

    Raises:
        ValueError: an id is in the index, a dimension is another one, or biases are missing or superfluous.
    """
    if (bias is None) != (index.bias is None):
        raise ValueError("give biases of new items if, and only if, the index has biases")
    new = unit_vectors(vectors, index.description.dimension).astype(np.float16)
    before, count = len(index.ids), len(new)
    view = Vectors(
        [index.vectors, new],
        np.repeat([0, 1], [before, count]),
        np.concatenate([np.arange(before), np.arange(count)]),
        index.description.dimension,
    )
    return SearchIndex(
        pa.concat_tables([index.items, items], promote_options="default"),
        view,
        None if bias is None or index.bias is None else np.concatenate([index.bias, bias]),
        index.description,
        None if index.approximate is None else index.approximate.added(new, before),
        np.concatenate([index.removed, np.zeros(count, dtype=bool)]),
        index.calibration,
    )
