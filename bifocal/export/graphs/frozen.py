"""Freeze the objects of imported packages: the process server of exports imports this module last.

A forked process then neither visits these objects in its collections nor copies their pages.
"""

import atexit
import gc

from torch.onnx._internal._lazy_import import onnxscript_apis

# Each export reads the signatures of 500 operators from their source, a third of its time.
signatures = onnxscript_apis.get_torchlib_ops()
vars(onnxscript_apis)["get_torchlib_ops"] = lambda: signatures

gc.freeze()
atexit.register(gc.unfreeze)  # or triton reports its objects as leaks
