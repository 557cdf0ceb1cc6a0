"""The door `python -m platform.sweep`: the standard library's module `platform`, with this folder as its path.

This folder hides the standard library's `platform`, which torch, ray and numpy import. So the genuine module takes its
place here, and the commands beside this file are found through it. Nothing else belongs in this folder.
"""

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

_spec = PathFinder.find_spec(__name__, [os.path.dirname(os.__file__)])
assert _spec is not None and _spec.loader is not None
_spec.submodule_search_locations = __path__
_module = sys.modules[__name__] = module_from_spec(_spec)
_spec.loader.exec_module(_module)
