"""Freeze the objects of imported packages: the process server of exports imports this module last.

A forked process then neither visits these objects in its collections nor copies their pages.
"""

import gc

gc.freeze()
