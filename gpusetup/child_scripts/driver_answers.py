"""How a child asks a driver and answers: on a descriptor of its own, out of reach of libraries.

A driver's library may print a line, even one that looks like an answer. `separate_output` is called
before any library is loaded: from then on descriptor 1 leads nowhere, and only `say` reaches the
one who asked. Python 3.8 syntax, standard library only.
"""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Dict, Tuple

Answer = Dict[str, Any]
Fields = Tuple[Tuple[str, Callable[..., Any]], ...]
OUTPUT = {"descriptor": 1}
MOST_DEVICES = 256
NOT_PLAUSIBLE = -1
"""Our own code, beside the driver's: the call worked, and its answer cannot be."""
IDENTITY_FIELDS = 3
"""What tells one GPU from another, the first fields; asked one by one, so that it is known where a
later call hangs."""


class NotPlausible(Exception):
    """An answer that cannot be."""


def separate_output(to: int | None = None) -> None:
    """From now on only `say` writes answers; what libraries print goes `to` a descriptor, or
    nowhere."""
    if OUTPUT["descriptor"] == 1:
        OUTPUT["descriptor"] = os.dup(1)
        os.dup2(os.open(os.devnull, os.O_WRONLY) if to is None else to, 1)


def say(line: Answer) -> None:
    """One line at once, whatever else is printed: nothing may wait in a buffer."""
    os.write(OUTPUT["descriptor"], (json.dumps(line, separators=(",", ":")) + "\n").encode())


def read_fields(error_type: Any, fields: Fields, *arguments: Any) -> Answer:
    """Read every field by itself, so that one that fails takes no other along.

    `error_type` is the driver's error, with its code as `value`; a call that is not there has none.
    """
    answer: Answer = {}
    problems = []
    for name, read in fields:
        try:
            answer[name] = read(*arguments)
        except (UnicodeDecodeError, AttributeError, NotPlausible, error_type) as problem:
            answer[name] = None
            unknown = None if isinstance(problem, AttributeError) else NOT_PLAUSIBLE
            code = getattr(problem, "value", unknown)
            problems.append({"field": name, "code": code, "text": str(problem)})
    answer["problems"] = problems
    return answer


def cuda_version(number: int) -> str | None:
    """CUDA's way to write a version as a number.

    >>> cuda_version(13000)
    '13.0'
    """
    return "%d.%d" % (number // 1000, number % 1000 // 10) if number else None


def plausible_count(count: int) -> int:
    """The number of GPUs that a driver counts; NotPlausible for too many."""
    if count > MOST_DEVICES:
        raise NotPlausible("%d GPUs are more than a machine has" % count)
    return count


def read_device(
    error_type: Any, index: int, handle_of: Callable[[int], Tuple[Any, ...]], fields: Fields
) -> Answer:
    """One GPU, whose fields are asked with what `handle_of` gives; what is known of it so far is
    said before a call may hang."""
    handle = read_fields(error_type, (("handle", handle_of),), index)
    answer, problems = {"index": index}, handle["problems"]
    groups = (*((field,) for field in fields[:IDENTITY_FIELDS]), fields[IDENTITY_FIELDS:])
    for group in () if problems else groups:
        answer.update(read_fields(error_type, group, *handle["handle"]))
        problems += answer.pop("problems")
        say({"part": {"device": answer}})
    answer["problems"] = problems
    return answer


def run(main: Callable[[], Answer]) -> None:
    separate_output()
    say(main())
    os._exit(0)  # the libraries' own ends may crash or hang, and nobody waits for them
