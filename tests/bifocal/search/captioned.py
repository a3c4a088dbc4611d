"""Items with captions and two columns of the user."""

import pyarrow as pa

CITIES = ["Rome", "Oslo", None, "Oslo harbor", "Rome"]
ITEMS = pa.table(
    {
        "item_id": list("abcde"),
        "captions": [
            ["A dog"],
            ["A dog runs.", "A dog jumps"],
            [],
            ["Ships in a harbor"],
            ["A cat"],
        ],
        "meta.city": CITIES,
        "meta.year": [1, 2, 3, 4, 5],
    }
)
