"""What the torch of this interpreter says of itself, as one line of JSON. Python 3.8 syntax.

Run by the target interpreter by path: this folder leaves the search path first, so that the
import is the one that the user's own `python` would do.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict


def answer() -> Dict[str, Any]:
    try:
        import torch
    except BaseException as problem:
        return {"import_error": "%s: %s" % (type(problem).__name__, problem)}
    said: Dict[str, Any] = {"version": str(torch.__version__), "cuda": torch.version.cuda}
    cuda = torch.cuda
    for name, question in (("cuda_available", cuda.is_available), ("kernels", cuda.get_arch_list)):
        try:
            said[name] = question()
        except Exception:
            said[name] = None
    return said


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]
    print(json.dumps(answer()))
