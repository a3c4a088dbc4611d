"""Write ONNX graphs, each in a fresh process, and check their shapes."""

import inspect
import multiprocessing
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import Tensor, nn

from bifocal.export.graphs import IR_VERSION

Shape = tuple[str | int, ...]
"""Dimensions of an input; a name stands for a dynamic dimension."""

STACK_TRACE = "pkg.torch.onnx.stack_trace"
"""Metadata of a node that holds source lines and paths of the machine that exports."""
PRELOAD = [
    "onnxscript.function_libs.torch_lib.ops",
    "torch._dynamo",
    "torch._export.non_strict_utils",
    "torch._functorch._aot_autograd.graph_compile",
    "torch._functorch.partitioners",
    "torch.onnx._internal.exporter._compat",
    "torch.onnx._internal.exporter._core",
    "torch.onnx._internal.exporter._torchlib.ops",
]
"""Modules that the process server imports once. Importing them takes longer than the export of a
small network."""
LIBRARIES, ROOM = ("open_clip", "timm", "transformers"), __name__.removesuffix(".graphs.write")
"""Further modules for the process server, if this process has imported them: libraries, and all of
the room."""
FROZEN = "bifocal.export.graphs.frozen"
PROCESSES = 2
"""Exports at a time: each process has a copy of torch, 700 MB."""


def write_graph(
    module: nn.Module,
    example: Sequence[Tensor],
    shapes: Mapping[str, Shape],
    outputs: Sequence[str],
    file: Path,
    *,
    any_size: bool = False,
) -> None:
    """Write ``module`` as ONNX; dynamic dimensions of ``example`` need at least two elements.
    ``any_size`` accepts a module that takes some sizes only, such as multiples of a backbone's
    stride.
    """
    names = [name for shape in shapes.values() for name in shape if isinstance(name, str)]
    # torch.export allows such a module for a name, not for a Dim.
    dims = {name: name if any_size else torch.export.Dim(name) for name in names}
    # Inputs share an axis on purpose.
    warnings.filterwarnings(
        "ignore", message="# The axis name: .* shares the same shape constraints"
    )
    axes: Any = [
        {axis: dims[n] for axis, n in enumerate(s) if isinstance(n, str)} for s in shapes.values()
    ]
    (parameter, *_) = inspect.signature(module.forward).parameters.values()
    if parameter.kind is parameter.VAR_POSITIONAL:
        axes = {parameter.name: tuple(axes)}
    program = torch.onnx.export(
        module,
        tuple(example),
        input_names=list(shapes),
        output_names=list(outputs),
        dynamic_shapes=axes,
        dynamo=True,
        verbose=False,
    )
    assert program is not None  # torch.onnx.export returns None without dynamo only
    for graph in program.model.graphs():
        for node in graph:
            node.metadata_props.pop(STACK_TRACE, None)
    program.model.ir_version = IR_VERSION
    program.save(file)  # weights of more than 2 GB beside it


def check_shapes(file: Path, shapes: Mapping[str, Shape]) -> None:
    """Raise ``ValueError`` if an input of the graph has lost a dynamic dimension."""
    for value in onnx.load(file).graph.input:
        shape = tuple(dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim)
        if shape != shapes[value.name]:
            raise ValueError(
                f"{file.name}: input {value.name} has shape {shape}, expected {shapes[value.name]}"
            )


def random_images(
    shapes: Mapping[str, Shape], batch: int, regions: int, length: int, generator: torch.Generator
) -> tuple[Tensor, ...]:
    """Return random pixels, which ``length`` enlarges, or random features with a mask, of the given
    input shapes."""
    sizes = {
        "batch": batch,
        "regions": regions,
        "height": 64 + 8 * length,
        "width": 96 + 4 * length,
    }
    sized = [
        [sizes[dim] if isinstance(dim, str) else dim for dim in shape] for shape in shapes.values()
    ]
    if len(sized) == 1:
        return (255 * torch.rand(sized[0], generator=generator),)
    mask = torch.rand(sized[1], generator=generator) < 0.7
    mask[:, 0] = True
    mask |= shapes["mask"][1] != "regions"  # an encoder of whole maps needs all cells
    return torch.randn(sized[0], generator=generator), mask


def run_in_fresh_process(function: Callable[..., None], *arguments: Any) -> None:
    """Run ``function`` in a new process: a second export in one process can silently freeze a
    dynamic axis."""
    context = multiprocessing.get_context("forkserver")
    loaded = [name for name in list(sys.modules) if name in LIBRARIES or name.startswith(ROOM)]
    context.set_forkserver_preload([*PRELOAD, *loaded, FROZEN])
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as process:
        process.submit(function, *arguments).result()
