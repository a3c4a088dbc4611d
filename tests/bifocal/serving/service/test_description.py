"""What the service says about its collection."""

import pyarrow as pa

from bifocal.serving.service.description import columns


def test_the_split_of_a_training_is_no_filter_but_the_column_of_a_user_is() -> None:
    colors = pa.array(["red", "blue"])
    own = pa.table({"meta.split": pa.array(["train", "test"]), "meta.color": colors})
    users = pa.table({"meta.split": pa.array(["left", "right"]), "meta.color": colors})
    assert [column.name for column in columns(own)] == ["color"]
    assert [column.name for column in columns(users)] == ["split", "color"]
