"""Helps a child process to call a driver and report results on a separate descriptor that libraries
cannot write to.

A driver's library may print a line, even one that looks like an answer. So `separate_output` is
called before any library is loaded. After that, text on descriptor 1 is thrown away or redirected,
and only `say` reaches the parent. Python 3.8 syntax, standard library only.
"""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Dict, Tuple

Answer = Dict[str, Any]
Fields = Tuple[Tuple[str, Callable[..., Any]], ...]
OUTPUT = {"descriptor": 1}
"""Where `say` writes."""
NOT_PLAUSIBLE = -1
"""Our own error code, next to the driver's: the call succeeded, but its answer is impossible."""


class NotPlausible(Exception):
    """An impossible value from the driver."""


LIMITS: Dict[str, Tuple[float, float]] = {
    name: limits
    for names, limits in (
        ("memory_total_bytes", (64 << 20, 16 << 40)),
        ("memory_used_bytes", (0, 16 << 40)),
        ("temperature_celsius", (-40, 200)),
        ("power_watts clock_sm_mhz clock_sm_max_mhz", (0, 20_000)),
        ("power_limit_watts power_limit_default_watts", (1, 20_000)),
        ("pcie_rx_bytes_per_second pcie_tx_bytes_per_second", (0, 1e13)),
        ("nvlink_rx_bytes_per_second nvlink_tx_bytes_per_second", (0, 1e14)),
        ("utilization_percent memory_busy_percent", (0, 100)),
        ("pcie_generation pcie_generation_max", (0, 16)),
        ("pcie_width pcie_width_max", (0, 64)),
    )
    for name in names.split()
}
"""The smallest and greatest value of a field; one beyond those of any GPU is no measurement."""


def is_plausible(name: str, value: Any) -> bool:
    """Whether a field can have this value; None means that it is unknown.

    >>> is_plausible("temperature_celsius", 4294967295), is_plausible("power_watts", None)
    (False, True)
    """
    if value is None or name not in LIMITS:
        return True
    low, high = LIMITS[name]
    return bool(low <= value <= high)


def separate_output(to: int | None = None) -> None:
    """Let only `say` write results from now on; text that libraries print goes to the descriptor
    `to`, or nowhere."""
    OUTPUT["descriptor"] = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY) if to is None else to, 1)


def say(line: Answer) -> None:
    """Write one line immediately, without a buffer."""
    # Write the line with one call, so that two threads never mix their lines.
    whole_line = json.dumps(line, separators=(",", ":")) + "\n"
    os.write(OUTPUT["descriptor"], whole_line.encode())


def read_fields(error_type: Any, fields: Fields, *arguments: Any) -> Answer:
    """Read every field with its own call, so that one failure does not affect the others.

    `error_type` is the driver's exception, with its code as `value`. For a missing function, the
    code is None.
    """
    answer: Answer = {}
    problems = []
    for name, read in fields:
        try:
            value = read(*arguments)
            if not is_plausible(name, value):
                raise NotPlausible("not plausible: %s" % value)
            answer[name] = value
        except (UnicodeDecodeError, AttributeError, NotPlausible, error_type) as problem:
            answer[name] = None
            # An old library or binding lacks the function. Bytes that are no text are as
            # impossible as a wrong number. Only the driver's own exception has a code.
            is_missing = isinstance(problem, AttributeError)
            code_without_driver = None if is_missing else NOT_PLAUSIBLE
            code = getattr(problem, "value", code_without_driver)
            problems.append({"field": name, "code": code, "text": str(problem)})
    answer["problems"] = problems
    return answer


def cuda_version(number: int) -> str | None:
    """CUDA's number for a version (1000 for each major, 10 for each minor version), as text.

    >>> cuda_version(13000)
    '13.0'
    """
    # A driver that does not know a version returns 0.
    return "%d.%d" % (number // 1000, number % 1000 // 10) if number else None


def read_device(
    error_type: Any, index: int, handle_of: Callable[[int], Tuple[Any, ...]], fields: Fields
) -> Answer:
    """Read one GPU. `handle_of` returns the arguments of its fields' functions, such as (library,
    device); if it fails, read only its problem."""
    answer = read_fields(error_type, (("handle", handle_of),), index)
    arguments = answer.pop("handle")
    if arguments:
        answer = read_fields(error_type, fields, *arguments)
    return dict(answer, index=index)


def run(main: Callable[[], Answer]) -> None:
    """Report the result of `main`, and end the process."""
    separate_output()
    say(main())
    os._exit(0)  # the libraries' own cleanup may crash or hang, and is not needed
