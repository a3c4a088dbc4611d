"""The layers of a network behind a named one."""

from collections.abc import Sequence
from typing import Self

from torch import Tensor, fx, nn


class LastLayers(nn.Module):
    """The layers of a timm model from the output of ``after`` to ``forward_features``.

    The statistics of batch norm and the weights of grouped convolutions, such as depthwise ones, are frozen.

    Called with maps of ``after``, it returns the outputs of the layers ``also``, then that of ``forward_features``.
    ``also`` may name ``after``.
    """

    def __init__(self, network: nn.Module, after: str, also: Sequence[str] = ()) -> None:
        super().__init__()
        if not after or after not in dict(network.named_modules()):
            raise ValueError(f"{type(network).__name__} has no layer {after!r}")
        self.layers = fx.GraphModule(network, _Tracer(after).trace(network))
        graph = self.layers.graph
        inputs = [node for node in graph.nodes if node.target == after]
        if len(inputs) != 1:
            raise ValueError(f"{after} is not a step of {type(network).__name__}.forward_features: name another layer")
        (image,) = [node for node in graph.nodes if node.op == "placeholder"]
        with graph.inserting_after(image):
            maps = graph.placeholder("maps")
        inputs[0].replace_all_uses_with(maps)
        (output,) = [node for node in graph.nodes if node.op == "output"]
        others = [maps if name == after else _last_node(graph, network, name) for name in also]
        output.args = ([*others, output.args[0]],)
        graph.eliminate_dead_code()
        if image.users:
            raise ValueError(f"the layers behind {after} read outputs of earlier layers, too: name a later layer")
        graph.erase_node(image)
        self.layers.delete_all_unused_submodules()
        self.layers.recompile()
        for module in self.layers.modules():
            if isinstance(module, nn.Conv2d) and module.groups > 1:
                module.requires_grad_(False)

    def forward(self, maps: Tensor) -> list[Tensor]:
        features: list[Tensor] = self.layers(maps)
        return features

    def train(self, mode: bool = True) -> Self:
        """Set the mode of all layers but batch norm, which stays in evaluation mode."""
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()
        return self


def _last_node(graph: fx.Graph, network: nn.Module, name: str) -> fx.Node:
    """Return the node of a layer, or of the last layer of a sequence."""
    found = [node for node in graph.nodes if node.op == "call_module" and f"{node.target}.".startswith(f"{name}.")]
    if not found or not name:
        raise ValueError(f"{name!r} is not a step of {type(network).__name__}.forward_features: name another layer")
    last: fx.Node = found[-1]
    return last


class _Tracer(fx.Tracer):
    """Follows ``forward_features`` through sequences down to single blocks, but not into ``after``."""

    traced_func_name = "forward_features"

    def __init__(self, after: str) -> None:
        super().__init__()
        self.after = after

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Return whether a module is one node of the graph."""
        return module_qualified_name == self.after or not isinstance(m, nn.Sequential)
