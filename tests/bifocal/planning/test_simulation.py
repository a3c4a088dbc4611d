"""Simulated code allocates and computes as real code does, measured by torch's own profiler and counter."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from bifocal.planning.simulation import Simulation

MB = 2**20


def real_peak(run: Callable[[], object]) -> int:
    """Return the largest sum of the allocations that exist at once, from the events of torch's allocator."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        run()
    live = peak = 0
    for event in sorted(recorded.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    return peak


def train_step(model: nn.Module, batch: Tensor) -> None:
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()


def network() -> nn.Module:
    convolution = nn.Sequential(nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten())
    return nn.Sequential(convolution, nn.Linear(32 * 30 * 30, 64), nn.Dropout(0.5), nn.Linear(64, 8))


def test_peak_and_operations_of_a_training_step_are_those_of_torch() -> None:
    def step() -> None:
        train_step(network(), torch.randn(64, 3, 32, 32))

    with FlopCounterMode(display=False) as counter:
        step()
    with Simulation() as simulation:
        step()
    # The flop counter sees the same convolutions and products; the profiler sees scratch memory of their kernels too.
    assert simulation.work.flops == counter.get_total_flops()
    assert simulation.peak == pytest.approx(real_peak(step), rel=0.15)
    assert simulation.peak > 20 * MB


def test_memory_is_freed_and_counted_again() -> None:
    with Simulation() as simulation:
        first = torch.empty(MB // 4)
        assert simulation.live == MB
        first.view(2, -1)
        assert simulation.live == MB
        second = first + 1
        del first
        assert (simulation.live, simulation.peak) == (MB, 2 * MB)
        simulation.reset_peak()
        second.add_(1)
        assert (simulation.live, simulation.peak) == (MB, MB)


def test_code_that_reads_integers_runs() -> None:
    lengths, mask = torch.tensor([3, 2, 2]), torch.tensor([True, False, True])
    with Simulation() as simulation:
        values = torch.rand(3, 4, 50)
        packed = pack_padded_sequence(values, lengths, batch_first=True)
        assert packed.data.shape == (7, 50)
        assert packed.batch_sizes.tolist() == [3, 3, 1]
        assert values[mask].shape == (2, 4, 50)
        assert (values > 0).nonzero().shape == (600, 3)  # a comparison of unknown numbers is true everywhere
        assert values.topk(2, dim=2).indices.max().item() == 0
        assert torch.isfinite(values.mean())
    assert simulation.work.flops == 0


def test_materialized_module_has_the_shapes_of_the_real_one() -> None:
    with torch.device("meta"):
        module = nn.Sequential(nn.Linear(5, 300), nn.BatchNorm1d(300), nn.LSTM(300, 40, batch_first=True))
    simulation = Simulation()
    simulation.materialize(module)
    with simulation:
        output, _ = module(torch.rand(2, 5))
    assert output.shape == (2, 40)
    weights = 300 * 5 + 300 + 4 * 300 + 4 * 40 * 340 + 2 * 4 * 40
    assert simulation.peak >= 4 * weights
