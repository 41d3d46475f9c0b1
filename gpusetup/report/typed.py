"""What the output of a typed command shows that no line of it would show alone."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.messages.search import Text, line_source
from gpusetup.model.machine import Event
from gpusetup.model.patterns import lazy
from gpusetup.model.units import GIB
from gpusetup.report.facts import SURE, USUAL, Claim, Facts

LINES_READ = 2_000
# `$ df -h /dev/shm  # in the container`: the remark of the person who typed the command.
PROMPT = lazy(r"^\s*(?:[\w@.:~-]{0,60}[$#>]|>>>) ")
IN_A_CONTAINER = lazy(r"\s#\s*in (?:the|a|my) container\b")
IN_WSL = lazy(r"\s#\s*in WSL\b")
# `ls: cannot access '/dev/nvidia0': No such file or directory`.
MISSING_NODE = lazy(r"^ls: cannot access '?(?P<path>/dev/[\w/-]+)'?: No such file")
# More digits are no size of a machine's memory.
# `shm              64M   64M     0 100% /dev/shm`: a row of `df -h`.
SHARED_MEMORY = lazy(
    r"^(?:shm|tmpfs)\s+(?P<size>\d{1,6}(?:\.\d{1,6})?)(?P<unit>[KMGT])i?\s.*\d+%\s+/dev/shm\s*$"
)
BYTES = {"K": 1 << 10, "M": 1 << 20, "G": GIB, "T": GIB << 10}
# `/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05`: the driver's library has the driver's version.
LIBCUDA = lazy(r"^\s*(?:.*\s)?/\S+/libcuda\.so\.(?P<version>\d{3}\.\d{2,3}(?:\.\d{2})?)\s*$")
# `print(torch.__file__)`, and a file in no folder of the package's name: `/home/me/torch.py`.
ASKS_FOR_A_FILE = lazy(r"\bprint\((?P<module>\w+)\.__file__\)")


def typed(text: Text) -> Facts:
    """What typed commands show: the container they ran in, its shared memory, the version of
    libcuda, and a file that hides a module.

    >>> from gpusetup.report.cleaning import text_of
    >>> next(typed(text_of("$ df -h /dev/shm  # in the container"))).value
    'docker'
    """
    asked_module, command = "", ""
    for number, line in enumerate(text.lines[:LINES_READ], 1):
        source = line_source(number)
        if PROMPT.search(line):
            command = line
        if command == line and IN_A_CONTAINER.search(line):
            yield Claim("container.kind", "docker", source, USUAL)
        if memory := SHARED_MEMORY.search(line):
            size = float(memory["size"]) * BYTES[memory["unit"]]
            yield Claim("memory.shm_total_bytes", int(size), source, SURE)
        if library := LIBCUDA.search(line):
            yield Claim("driver.library_version", library["version"], source, USUAL)
        if node := MISSING_NODE.search(line):
            yield from _missing_node(node["path"], command, source)
        yield from _hidden_module(line, asked_module, source)
        question = ASKS_FOR_A_FILE.search(line)
        asked_module = question["module"] if question else ""


def _missing_node(path: str, command: str, source: str) -> Iterator[Event]:
    """An event if a device node is missing in the place that the command's remark names."""
    text = f"{path}: No such file or directory"
    if path == "/dev/nvidia0" and IN_A_CONTAINER.search(command):
        yield Event(kind="container-no-gpu", source=source, text=text)
    # WSL reaches the driver of Windows through this node.
    elif path == "/dev/dxg" and IN_WSL.search(command):
        yield Event(kind="wsl-driver", source=source, text=text)


def _hidden_module(line: str, module: str, source: str) -> Iterator[Event]:
    """An event if the answer to `print(module.__file__)` is a single file instead of a package."""
    path = line.strip()
    # Only of torch it is known that it is a package and never a single file.
    if module == "torch" and path.endswith(("/torch.py", "\\torch.py")):
        values = {"module": module, "path": path}
        yield Event(kind="module-shadowed", values=values, source=source, text=path)
