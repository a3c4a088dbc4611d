"""A training with checkpoints, its network and its artifact."""

from collections.abc import Collection as Container
from pathlib import Path

from bifocal.serialization import load_state, save_network
from runtime import artifacts
from tests.bifocal.training.regression import train


class Train:
    """A training with a checkpoint after each step."""

    def prepare(self, folder: Path) -> None:
        """Train undisturbed."""
        self.run(folder, 0)
        (folder / "embedding").rename(folder / "expected")

    def run(self, folder: Path, number: int) -> None:
        """Train, from the last checkpoint if there is one, and commit the artifact."""
        partial = artifacts.open_partial(folder / "embedding", {"component": "train"})
        task, _, _ = train(partial / "checkpoints", checkpoint_every_seconds=0.0)
        save_network(partial, {"name": "Regression"}, task.model.state_dict())
        artifacts.commit(partial, folder / "embedding", {"component": "train"})

    def check(self, folder: Path, acknowledged: Container[int]) -> None:
        """Check that there is a whole network or none, and that the next training ends with the
        undisturbed weights."""
        if (folder / "embedding").exists():
            self._check_weights(folder)
        else:
            assert not acknowledged
        self.run(folder, 0)
        self._check_weights(folder)
        assert sorted(path.name for path in folder.iterdir()) == ["embedding", "expected"]

    def _check_weights(self, folder: Path) -> None:
        artifacts.check_files(folder / "embedding")
        expected, found = (load_state(folder / name) for name in ("expected", "embedding"))
        assert all(bool((found[name] == value).all()) for name, value in expected.items())
