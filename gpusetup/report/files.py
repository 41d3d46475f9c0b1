"""Finds files in a text: the file that failed to load, with its owner, and files in listings."""

from __future__ import annotations

import re

from gpusetup.messages.search import SHOWN_CHARACTERS, Text, line_source
from gpusetup.model.machine import Event
from gpusetup.report.facts import Facts

# `libcudart.so.12`, `torch_cuda.dll`, `_C.pyd`.
LIBRARY = r"[\w.+~@-]*\.(?:so(?:\.\d+)*|dylib|dll|pyd)"
# `/usr/lib/libcuda.so.1`, `C:\\Windows\\System32\\nvcuda.dll`.
PATH = rf"(?:/(?:[\w.+~@-]+/)+|[A-Za-z]:\\(?:[^\\/:*?\"<>|\n]+\\)+){LIBRARY}"
"""The whole path of a library."""
# `lrwxrwxrwx 1 root root 12 May  3 10:00 /usr/lib/libcuda.so -> libcuda.so.1`; the path of nvcc;
# `libcuda.so.1 (libc6,x86-64) => /usr/lib/libcuda.so.1`.
LISTED = re.compile(
    rf"^\s*(?:[-lrwxs.+]{{10,11}}\s.*?\s)?(?P<path>{PATH})(?: -> \S+)?$"
    r"|^\s*(?P<tool>/(?:[\w.+~@-]+/)+bin/nvcc)$"
    rf"|^\s*lib[\w.+-]+\.so[.\d]* \([^)]*\) => (?P<cached>{PATH})$",
    re.I,
)
"""A line from `find`, `ls -l`, `whereis` or `ldconfig -p` that only lists a file."""
# `OSError: /x/libc10.so: ...`, `Error loading "C:\\x\\c10.dll"`, `Could not load /x/libc10.so`,
# `/x/libc10.so: undefined symbol`.
FAILED = re.compile(
    rf"\b(?:OSError|ImportError|RuntimeError|FileNotFoundError)\b:? (?P<a>{PATH}): "
    rf"|\bError loading \W?(?P<b>{PATH})"
    rf"|\b(?:[Cc]ould not|[Cc]annot|[Ff]ailed to|[Uu]nable to) (?:load|find|open|locate)\b[^\n]{{0,80}}?[\"'(: ](?P<c>{PATH})"
    rf"|(?P<d>{PATH}): (?:undefined symbol|cannot open shared object)",
    re.I,
)
"""A loader's message about a file that it could not load."""
# `version 'GLIBCXX_3.4.32' not found (required by /x/_C.so)`.
REQUIRED_BY = re.compile(rf"\bnot found \(required by ({PATH})\)", re.I)
"""The file that needs a newer version of a library."""
MAX_LISTED = 12
"""The most files that are kept from listings, because a full `ldconfig -p` has thousands."""
MAX_LISTED_LINE, MAX_LOADER_LINE = 300, 2000
"""Longer lines are not read as listings or loader messages: the patterns are slow on them."""

LIBRARY_ENDINGS = (".so", ".dll", ".pyd", ".dylib", "/nvcc")


def files(text: Text) -> Facts:
    """The last file that failed to load, with its owner, and the first listed libraries."""
    # The patterns are slow, and they cannot find anything in a text without a library's ending.
    if not text.has_any(LIBRARY_ENDINGS):
        return
    failing, listed = None, []
    for number, line in enumerate(text.lines, 1):
        is_short = len(line) < MAX_LOADER_LINE
        # The file that requires a newer library is the one that fails, so it is looked for first.
        if is_short and (match := REQUIRED_BY.search(line) or FAILED.search(line)):
            # Each form of the message has its own group, so only one group has a value.
            failing = (number, line, next(filter(None, match.groups())))
        if len(line) < MAX_LISTED_LINE and (match := LISTED.match(line)):
            listed.append((number, line, match["path"] or match["tool"] or match["cached"]))
    if failing:
        number, line, path = failing
        values = {"path": path, **owner_of(path)}
        # A mangled symbol at the end of the line is long.
        quote = line.strip()[:SHOWN_CHARACTERS]
        yield Event(kind="failing-file", values=values, source=line_source(number), text=quote)
    for number, line, path in listed[:MAX_LISTED]:
        values = {"path": path}
        source = line_source(number)
        yield Event(kind="file-listed", values=values, source=source, text=line.strip())


PACKAGES = re.compile(
    r"^(?P<root>.*?)[/\\]+(?:lib(?:64)?[/\\]+python\d(?:\.\d+)?t?[/\\]+)?(?:Lib[/\\]+)?(?:site|dist)-packages[/\\]+(?P<package>[A-Za-z0-9_.+-]+)",
    re.I,
)
BUILT = re.compile(
    # What a package compiles at its first use, and another project's sources inside it.
    r"[/\\](?:torch_extensions|\.triton|triton_cache|torchinductor\w*)"
    r"[/\\](?:[\w.-]+[/\\])*?(?P<cached>[\w-]+)[/\\][^/\\]+$"
    r"|[/\\](?:third[-_]party|3rdparty|vendor|submodules|_deps)[/\\](?P<inside>[\w.-]+)[/\\]",
    re.I,
)
SYSTEM = re.compile(
    # NVIDIA's, AMD's and Intel's own folders too.
    r"^(?:/(?:usr|nix|gnu|lib|lib64|bin|etc|run|snap|opt/(?:nvidia|rocm[\w.-]*|intel|hpcx|tensorrt))/"
    r"|[A-Z]:\\(?:Windows|Program Files\\NVIDIA[^\\]*)\\)",
    re.I,
)


def owner_of(path: str) -> dict[str, str]:
    r"""The owner of the file at this path: the kind of `place` (`environment`, `system`,
    `checkout`), the `package` and the `root` folder of its environment or checkout, each only if
    the path names it.

    >>> owner_of("/opt/conda/envs/ft/lib/python3.10/site-packages/bitsandbytes/libx.so")["root"]
    '/opt/conda/envs/ft'
    >>> owner_of("/scratch/lab/bnb/bitsandbytes/libbitsandbytes_cpu.so")
    {'place': 'checkout', 'package': 'bitsandbytes', 'root': '/scratch/lab/bnb'}
    >>> owner_of(r"D:\app\venv\Lib\site-packages\torch\lib\c10.dll")["package"]
    'torch'
    """
    # Some of these folders are inside site-packages, so they are looked for first.
    if built := BUILT.search(path):
        return {"place": "environment", "package": built["cached"] or built["inside"]}
    if installed := PACKAGES.search(path):
        # `_C.cpython-312-x86_64-linux-gnu.so`, `torch-2.5.1.dist-info`.
        package = re.split(r"\.(?:cpython|abi3|so|pyd|dll|cp\d)|-\d", installed["package"])[0]
        return {"place": "environment", "package": package, "root": installed["root"]}
    if SYSTEM.search(path):
        return {"place": "system"}
    # The file belongs neither to an installed package nor to the system, so it is in a project's
    # sources. The last folder counts as the package.
    without_file = re.split(r"[/\\]+[^/\\]+$", path)[0]
    package = re.split(r"[/\\]", without_file)[-1]
    # Empty if the package is a folder of the root directory.
    root = without_file[: -len(package)].rstrip("/\\")
    return {"place": "checkout", "package": package, **({"root": root} if root else {})}
