"""What the torch of this interpreter says of itself, as one line of JSON. Python 3.8 syntax.

Run by the target interpreter by path: this folder leaves the search path first, so that the
import is the one that the user's own `python` would do.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict


def versions(number: int | None) -> str | None:
    """cuDNN's number as a version: 90100 is 9.1.0, 8902 is 8.9.2.

    >>> versions(90100), versions(8902)
    ('9.1.0', '8.9.2')
    """
    if not number:
        return None
    major = 10000 if number >= 90000 else 1000
    return "%d.%d.%d" % (number // major, number % major // 100, number % 100)


def answer() -> Dict[str, Any]:
    try:
        import torch
    except BaseException as problem:
        return {"import_error": "%s: %s" % (type(problem).__name__, problem)}
    said: Dict[str, Any] = {"version": str(torch.__version__), "cuda": torch.version.cuda}
    questions: Dict[str, Any] = {
        "cuda_available": torch.cuda.is_available,
        "kernels": torch.cuda.get_arch_list,
        "cudnn": lambda: versions(torch.backends.cudnn.version()),
    }
    for name, question in questions.items():
        try:
            said[name] = question()
        except Exception as problem:
            said[name + "_problem"] = "%s: %s" % (type(problem).__name__, problem)
    return said


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]
    print(json.dumps(answer()))
