"""A loss that can stop a training."""

from collections.abc import Callable

from torch import Tensor, nn

from bifocal.scores import Scores


class Interrupted(nn.Module):
    """A loss that calls ``tick`` before each step."""

    def __init__(self, tick: Callable[[], None], loss: nn.Module) -> None:
        super().__init__()
        self.tick, self.loss = tick, loss

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        self.tick()
        value: Tensor = self.loss(scores, matches)
        return value
