"""Three small tasks to compare rank losses: retrieval, ordinal regression, multi-label
classification.

Each task trains two-layer networks for 250 steps of Adam and returns the metric, in [0, 1], on new
samples.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from bifocal.metrics import mean_average_precision, spearman
from bifocal.scores import Scores
from bifocal.sorters import exact_ranks


def network(inputs: int, outputs: int) -> nn.Sequential:
    """Return a network of two layers."""
    return nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, outputs))


def fit(model: nn.Module, rate: float, steps: int, batch_loss: Callable[[], Tensor]) -> None:
    """Train with Adam."""
    adam = torch.optim.Adam(model.parameters(), rate)
    for _ in range(steps):
        adam.zero_grad()
        batch_loss().backward()
        adam.step()


def retrieval(loss: nn.Module, rate: float, seed: int, steps: int = 250, batch: int = 100) -> float:
    """Mean R@1 of two networks on 1,000 new pairs: both members are noisy views of 12 hidden
    numbers."""
    generator = torch.Generator().manual_seed(seed)
    views = [torch.randn(12, 48, generator=generator) * 0.43 for _ in range(2)]

    def pairs(count: int) -> list[Tensor]:
        hidden = torch.randn(count, 12, generator=generator)
        return [
            torch.tanh(hidden @ view) + 0.25 * torch.randn(count, 48, generator=generator)
            for view in views
        ]

    training, test = pairs(3000), pairs(1000)
    torch.manual_seed(seed)
    branches = nn.ModuleList([network(48, 24), network(48, 24)])
    matches = torch.eye(batch, dtype=torch.bool)

    def cosines(images: Tensor, captions: Tensor) -> Tensor:
        return normalize(branches[0](images), dim=1) @ normalize(branches[1](captions), dim=1).T

    def batch_loss() -> Tensor:
        rows = torch.randint(3000, (batch,), generator=generator)
        value: Tensor = loss(Scores(cosines(training[0][rows], training[1][rows])), matches)
        return value

    fit(branches, rate, steps, batch_loss)
    with torch.no_grad():
        scores = cosines(*test)
    return (
        sum(
            float((exact_ranks(side).diagonal() == 0).float().mean()) for side in (scores, scores.T)
        )
        / 2
    )


def ordinal(loss: nn.Module, rate: float, seed: int, steps: int = 250, batch: int = 100) -> float:
    """Spearman correlation on 2,000 new samples of a skewed target under heavy-tailed noise."""
    generator = torch.Generator().manual_seed(seed)
    direction = torch.randn(32, 2, generator=generator) / 32**0.5

    def samples(count: int) -> tuple[Tensor, Tensor]:
        features = torch.randn(count, 32, generator=generator)
        signal = (features @ direction).sin().sum(dim=1)
        noise = torch.tan(1.4 * (torch.rand(count, generator=generator) * 2 - 1))
        return features, torch.exp(2 * signal) + 0.3 * noise

    (features, targets), (test, truth) = samples(2000), samples(2000)
    torch.manual_seed(seed)
    model = network(32, 1)

    def batch_loss() -> Tensor:
        rows = torch.randint(2000, (batch,), generator=generator)
        value: Tensor = loss(Scores(model(features[rows]).T), targets[rows][None])
        return value

    fit(model, rate, steps, batch_loss)
    with torch.no_grad():
        return spearman(model(test)[:, 0], truth)


def labels(loss: nn.Module, rate: float, seed: int, steps: int = 250, batch: int = 100) -> float:
    """Mean average precision on 2,000 new samples of ten rare labels."""
    generator = torch.Generator().manual_seed(seed)
    directions = torch.randn(32, 10, generator=generator) / 32**0.5

    def samples(count: int) -> tuple[Tensor, Tensor]:
        features = torch.randn(count, 32, generator=generator)
        strength = features @ directions + (2 * features @ directions.flip(1)).sin()
        strength += 0.5 * torch.randn(count, 10, generator=generator)
        return features, strength > 2

    (features, truth), (test, test_truth) = samples(3000), samples(2000)
    torch.manual_seed(seed)
    model = network(32, 10)

    def batch_loss() -> Tensor:
        rows = torch.randint(3000, (batch,), generator=generator)
        value: Tensor = loss(Scores(model(features[rows]).T), truth[rows].T)
        return value

    fit(model, rate, steps, batch_loss)
    with torch.no_grad():
        return mean_average_precision(model(test).T, test_truth.T)
