"""A rank that goes wrong: on PYTHONPATH, with RANK_FAULT="1 all_reduce hang".

Acts in the computing child of that rank only, on the function of `torch.distributed` that is named.
"""

import importlib.util
import os
import sys
import time

HOME = "torch.distributed.distributed_c10d"


def broken(real, how):
    def stands_in(*arguments, **named):
        if how == "hang":
            time.sleep(600)
        return real(*arguments, **named)

    return stands_in


class Finder:
    """Loads the one module as usual, then breaks the one function in it."""

    def __init__(self, function, how):
        self.function = function
        self.how = how

    def find_spec(self, name, path=None, target=None):
        if name != HOME:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            setattr(module, self.function, broken(getattr(module, self.function), self.how))

        spec.loader.exec_module = exec_module
        return spec


rank, function, how = os.environ.get("RANK_FAULT", "- - -").split()
if "--worker" in sys.argv and os.environ.get("RANK") == rank:
    sys.meta_path.insert(0, Finder(function, how))
