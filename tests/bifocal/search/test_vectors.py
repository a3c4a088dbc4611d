"""Arrays in files."""

import errno
from pathlib import Path

import numpy as np
import pytest

from bifocal.search.vectors import save_array

FULL = Path("/dev/full")
"""Linux: every write fails, as on a full disk."""


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_named_in_the_error() -> None:
    with pytest.raises(OSError, match="No space left on device") as caught:
        save_array(FULL, np.ones((100, 1000), np.float32))
    assert caught.value.errno == errno.ENOSPC


def test_arrays_are_read_as_numpy_saved_them(tmp_path: Path) -> None:
    for array in (
        np.zeros((0, 4), np.float16),
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.array([True]),
    ):
        save_array(tmp_path / "own.npy", array)
        np.save(tmp_path / "numpys.npy", array)
        assert (tmp_path / "own.npy").read_bytes() == (tmp_path / "numpys.npy").read_bytes()
