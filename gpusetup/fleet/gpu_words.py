"""Shortens the list of GPUs in a finding's title.

Doctor gives each GPU's full name, `GPU 4 (00000000:5E:00.0, NVIDIA H100)`. Slurm and
node-problem-detector truncate a reason after a few hundred characters, so a list of eight such
names would leave no room for the fault itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

BUS_ADDRESS = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]"
ONE_GPU = rf"GPU(?: \d{{1,3}}\b)?(?: \({BUS_ADDRESS}(?:, [^()]*)?\))?"
"""A GPU in doctor's notation: with its number, its address or both."""
GPU_LIST = re.compile(rf"(?<![\w-]){ONE_GPU}(?:, {ONE_GPU})*")
NUMBER = re.compile(r"GPU (\d{1,3})\b")
ADDRESS = re.compile(BUS_ADDRESS)


def in_short(title: str) -> str:
    """A title with a shortened list of GPUs, which comes after the words that describe the fault.

    >>> in_short("GPU 4 (00000000:5E:00.0, NVIDIA L4): memory errors")
    'memory errors: GPU 4 (00000000:5E:00.0)'
    >>> in_short("GPU 0 (00000000:1A:00.0, L4), GPU 1 (00000000:2B:00.0, L4): throttled by heat")
    'throttled by heat: GPUs 0, 1'
    >>> in_short("Other programs already use most of the memory of the Laptop GPU")
    'Other programs already use most of the memory of the Laptop GPU'
    """
    for gpu_list in GPU_LIST.finditer(title):
        short_list = _short_list(gpu_list[0])
        # A "GPU" without a number or an address is the end of a GPU's name (`Laptop GPU`), or just
        # the word.
        if short_list is None:
            continue
        before = title[: gpu_list.start()]
        after = title[gpu_list.end() :]
        if not before and after.startswith(": "):
            words = after.removeprefix(": ")
            return f"{words}: {short_list}"
        return f"{before}{short_list}{after}"
    return title


def _short_list(gpu_list: str) -> str | None:
    """A list of GPUs in short form: a single GPU with its address, several GPUs by number; None if
    they have neither."""
    numbers = [int(number) for number in NUMBER.findall(gpu_list)]
    addresses = ADDRESS.findall(gpu_list)
    if len(numbers) > 1:
        return f"GPUs {ranges(numbers)}"
    if numbers and addresses:
        return f"GPU {numbers[0]} ({addresses[0]})"
    if numbers:
        return f"GPU {numbers[0]}"
    if addresses:
        return f"GPU {', '.join(addresses)}"
    return None


def ranges(numbers: Iterable[int]) -> str:
    """Numbers as text, where three or more consecutive numbers become a range.

    >>> ranges([0, 1, 2, 3, 5, 7]), ranges([2, 3]), ranges([4])
    ('0-3, 5, 7', '2, 3', '4')
    """
    ordered = sorted(set(numbers))
    rows: list[list[int]] = [ordered[:1]]
    for previous, number in pairwise(ordered):
        if number == previous + 1:
            rows[-1].append(number)
        else:
            rows.append([number])
    parts = []
    for row in rows:
        if len(row) > 2:
            parts.append(f"{row[0]}-{row[-1]}")
        else:
            parts += map(str, row)
    return ", ".join(parts)
