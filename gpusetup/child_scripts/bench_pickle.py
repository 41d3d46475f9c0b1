"""A model and a batch that another process saved, as a function that `bench.py` can run.

The file is torch's own (`torch.save`), made a moment ago by `gpusetup.tune.BatchSizeOptimizer` in
the user's process. Classes of the user's script (`__main__`) are found by running that script under
another name, as multiprocessing does. Python 3.8 syntax.
"""

from __future__ import annotations

import os
import sys
import types
from typing import Any, Callable, Dict


def function_of(path: str) -> Callable[[], Dict[str, Any]]:
    """The saved job, as a function without parameters (its batch is an example)."""
    import json

    with open(path + ".json", encoding="utf-8") as file:
        about = json.load(file)
    sys.path[:0] = [one for one in about["path"] if one not in sys.path]
    if about["main"]:
        as_main(about["main"])

    def build() -> Dict[str, Any]:
        import torch

        saved = torch.load(path, weights_only=False)
        return {key: value for key, value in saved.items() if value is not None}

    return build


def as_main(path: str) -> None:
    """Run the user's script as `__mp_main__`, once, and let it stand for `__main__`.

    `multiprocessing`, which torch imports, gives that name to this program first.
    """
    import runpy

    if getattr(sys.modules.get("__mp_main__"), "__file__", None) == path:
        return
    os.environ["GPUSETUP_PROBE"] = "1"
    module = types.ModuleType("__mp_main__")
    module.__dict__.update(runpy.run_path(path, run_name="__mp_main__"))
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module
