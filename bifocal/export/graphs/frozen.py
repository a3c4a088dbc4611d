"""Freeze the objects of imported packages: the process server of exports imports this module last.

A forked process then neither visits these objects in its collections nor copies their pages.
"""

import atexit
import gc

gc.freeze()
atexit.register(gc.unfreeze)  # or triton reports its objects as leaks
