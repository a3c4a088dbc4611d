"""A fresh process for each export."""

import multiprocessing
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

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
"""Modules that the process server imports once. Importing them takes longer than the export of a small network."""
LIBRARIES, ROOM = ("open_clip", "timm", "transformers"), __name__.removesuffix(".graphs.process")
"""Further modules for the process server, if this process has imported them: libraries, and all of the room."""
FROZEN = "bifocal.export.graphs.frozen"


def run_in_fresh_process(function: Callable[..., None], *arguments: Any) -> None:
    """Run ``function`` in a new process: a second export in one process can silently freeze a dynamic axis."""
    context = multiprocessing.get_context("forkserver")
    loaded = [name for name in list(sys.modules) if name in LIBRARIES or name.startswith(ROOM)]
    context.set_forkserver_preload([*PRELOAD, *loaded, FROZEN])
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as process:
        process.submit(function, *arguments).result()
