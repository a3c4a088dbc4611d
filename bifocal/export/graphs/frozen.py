"""Freeze the objects of imported packages: the process server of exports imports this module last.

A forked process then neither visits these objects in its collections nor copies their pages.
"""

import atexit
import gc
from importlib import import_module

# Each export reads the signatures of 500 operators from their source, a third of its time.
onnxscript = import_module("torch.onnx._internal._lazy_import").onnxscript_apis
signatures = onnxscript.get_torchlib_ops()
vars(onnxscript)["get_torchlib_ops"] = lambda: signatures

gc.freeze()
atexit.register(gc.unfreeze)  # or triton reports its objects as leaks
