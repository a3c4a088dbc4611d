"""Weight decay only of matrices."""

import pytest
import torch
from torch import nn

from bifocal.losses import InfoNCELoss
from bifocal.training.optimizers import build_optimizer, limit_weight_decay, parameter_groups


@pytest.mark.parametrize("optimizer", [{"name": "SGD", "weight_decay": 0.5}, {"name": "AdamW", "weight_decay": 0.5}])
def test_weight_decay_shrinks_matrices_alone(optimizer: dict[str, object]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Embedding(5, 3))
    loss = InfoNCELoss(learn_temperature=True)
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    groups = [*parameter_groups(model, {"0": 0.5}), {"params": list(loss.parameters())}]
    built = build_optimizer(optimizer, limit_weight_decay(groups, optimizer), 0.1)
    for group in built.param_groups:
        group["lr"] = 0.1 * group.get("factor", 1.0)
    for parameter in (*model.parameters(), *loss.parameters()):
        parameter.grad = torch.zeros_like(parameter)
    built.step()
    factors = {"0.weight": 1 - 0.5 * 0.1 * 0.5, "2.weight": 1 - 0.1 * 0.5}
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(tensor, factors.get(name, 1.0) * start[name])
    assert loss.learned_values() == {"temperature": pytest.approx(0.07)}


def test_groups_stay_as_they_are_without_weight_decay() -> None:
    groups = parameter_groups(nn.Linear(2, 2), {})
    assert limit_weight_decay(groups, "Adam") == groups
    assert len(limit_weight_decay(groups, "AdamW")) == 2  # torch's default is 0.01
