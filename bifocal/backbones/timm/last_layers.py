"""The layers of a network behind a named one."""

from typing import Self

from torch import Tensor, fx, nn


class LastLayers(nn.Module):
    """The layers of a timm model from the output of ``after`` to ``forward_features``, with frozen batch norm.

    Example:
        >>> import timm, torch
        >>> network = timm.create_model("resnet10t", num_classes=0).eval()
        >>> image = torch.rand(1, 3, 64, 64)
        >>> maps = network.layer3(network.layer2(network.layer1(network.maxpool(network.act1(network.bn1(
        ...     network.conv1(image)))))))
        >>> bool(torch.equal(LastLayers(network, "layer3")(maps), network.forward_features(image)))
        True
    """

    def __init__(self, network: nn.Module, after: str) -> None:
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
        graph.eliminate_dead_code()
        if image.users:
            raise ValueError(f"the layers behind {after} read outputs of earlier layers, too: name a later layer")
        graph.erase_node(image)
        self.layers.delete_all_unused_submodules()
        self.layers.recompile()

    def forward(self, maps: Tensor) -> Tensor:
        features: Tensor = self.layers(maps)
        return features

    def train(self, mode: bool = True) -> Self:
        """Set the mode of all layers but batch norm, which stays in evaluation mode."""
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()
        return self


class _Tracer(fx.Tracer):
    """Follows ``forward_features`` through sequences down to single blocks, but not into ``after``."""

    traced_func_name = "forward_features"

    def __init__(self, after: str) -> None:
        super().__init__()
        self.after = after

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Return whether a module is one node of the graph."""
        return module_qualified_name == self.after or not isinstance(m, nn.Sequential)
