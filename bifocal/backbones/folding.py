"""Batch norm folded into the convolutions before it, for faster inference."""

import copy
from collections.abc import Collection

from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval


def folded(network: nn.Module, keep: Collection[str] = ()) -> nn.Module:
    """Return a copy of a network in evaluation mode whose batch norms are part of the convolutions
    before them.

    Each folded batch norm becomes its activation, or the identity. The outputs are the same, up to
    rounding, but for modules that end with a convolution before its batch norm; those in ``keep``
    are left as they are. A network that ``torch.fx`` cannot follow is copied unchanged.
    """
    network, tracer = copy.deepcopy(network), _Tracer()
    if hasattr(network, "forward_features"):  # of timm
        tracer.traced_func_name = "forward_features"
    try:
        graph = tracer.trace(network)
    except Exception:  # control flow that depends on values raises errors of many classes
        return network
    modules = dict(network.named_modules())
    calls = [node.target for node in graph.nodes if node.op == "call_module"]
    for node in graph.nodes:
        norm = modules.get(node.target) if node.op == "call_module" else None
        before = node.args[0] if norm is not None and node.args else None
        if (
            not isinstance(norm, nn.BatchNorm2d)
            or not isinstance(before, fx.Node)
            or len(before.users) > 1
        ):
            continue
        conv = modules.get(str(before.target)) if before.op == "call_module" else None
        if (
            not isinstance(conv, nn.Conv2d)
            or calls.count(before.target) > 1
            or calls.count(node.target) > 1
        ):
            continue
        if any(
            _is_inside(before.target, name) and not _is_inside(node.target, name) for name in keep
        ):
            continue
        fused = fuse_conv_bn_eval(conv, norm)
        conv.weight, conv.bias = (
            fused.weight,
            fused.bias,
        )  # in place: a subclass of Conv2d pads by itself
        owner, _, name = str(node.target).rpartition(".")
        setattr(
            network.get_submodule(owner), name, getattr(norm, "act", nn.Identity())
        )  # timm's BatchNormAct2d
    return network


def _is_inside(module: object, container: str) -> bool:
    return f"{module}.".startswith(f"{container}.")


class _Tracer(fx.Tracer):
    """Follows a network down to its convolutions and norms."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Return whether a module is one node of the graph."""
        return isinstance(m, nn.Conv2d | nn.BatchNorm2d) or super().is_leaf_module(
            m, module_qualified_name
        )
