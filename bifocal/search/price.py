"""Price of a query, known before it runs: its work beyond a search by a vector.

A step takes some nanoseconds; a test measures that no query below the limit takes a second.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from bifocal.search.filters import GROUP_DEPTH, metadata_column
from bifocal.search.keywords import Keywords
from bifocal.search.query import EncodedQuery

QUICK, MOST, PASSES = 2**23, 2**28, 512
"""Steps of a query that delays no other; of the dearest query; and the same for each item, so that
a large collection can be filtered too."""
NUMBER, TEXT, TEXT_RANGE = 4, 8, 128
"""Steps of an item that is compared with a condition."""
VALUE, WORD, POSTING, GROUPED = 4096, 8192, 8, 64
"""Steps of a value of a condition, a word of a query, an item with the word, and a grouped item."""


def filter_price(items: pa.Table, where: Mapping[str, Any] | None) -> int:
    """Return the steps of a filter."""
    steps = 0
    for name, condition in (where or {}).items():
        kind = metadata_column(items, name).type
        is_text = pa.types.is_string(kind) or pa.types.is_dictionary(kind)
        is_list = isinstance(condition, Sequence) and not isinstance(condition, str)
        each = NUMBER if not is_text else TEXT_RANGE if isinstance(condition, Mapping) else TEXT
        steps += len(items) * each + VALUE * (len(condition) if is_list else 2)
    return steps


def price(items: pa.Table, query: EncodedQuery, keywords: Keywords | None) -> int:
    """Return the steps of a query; ``keywords`` are those of the mode "hybrid"."""
    steps = filter_price(items, query.where)
    if query.mode == "regions":
        steps += QUICK + 1
    if keywords is not None:
        spans = keywords.postings(str(query.sentence))
        steps += sum(WORD + POSTING * (span.stop - span.start) for span, _ in spans)
    return int(steps) + (0 if query.group is None else GROUPED * GROUP_DEPTH)


def check_price(steps: int, items: pa.Table) -> int:
    """Return the steps; raise ``ValueError`` if they are more than a query may take."""
    if steps > (most := max(MOST, PASSES * len(items))):
        raise ValueError(
            f"the query takes {steps:,} steps in {len(items):,} items, at most {most:,}: "
            "name fewer columns or values in 'where'"
        )
    return steps
