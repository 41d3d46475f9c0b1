"""Pieces of patterns that several messages share."""

from __future__ import annotations

BUS = r"(?P<bus_id>[0-9a-f]{2,8}:[0-9a-f:.]{1,13}[0-9a-f])"
"""A GPU's bus address, as the kernel and NVML write it."""
CAPABILITY = r"(?P<capability>\d{1,2}\.\d)"
HOST = r"(?P<host>[\w.-]+\.[a-z]{2,10})"
DRIVER_VERSION = r"\d{3}\.\d{1,3}(?:\.\d{1,3})?"
"""A driver of NVIDIA's: 550.54.14."""
RELEASE = r"\d{1,2}\.\d{1,2}\.\d{1,2}"
"""A release by its three numbers: 2.5.1."""
_LABELLED = r"(?:[abrc.]{1,4}\w{1,16})?(?:\+\w(?:[\w.]{0,38}\w)?)?"
"""What stands behind a version: a pre-release, a local label."""
TORCH_VERSION = rf"[0-2]\.\d{{1,2}}(?:\.\d{{1,3}})?{_LABELLED}"
"""A version of torch that may lack its last number: 2.5, 2.6.0a0+git1234."""

NAMES = (
    "abc ast asyncio bisect builtins bz2 calendar code codecs collections contextlib copy copyreg"
    " ctypes dataclasses datetime decimal difflib dis email enum fnmatch fractions functools gc"
    " getpass glob gzip hashlib heapq http importlib inspect io ipaddress itertools json keyword"
    " linecache locale logging lzma math mimetypes multiprocessing numbers opcode operator os parser"
    " pathlib pickle pickletools platform pprint profile pstats queue random re reprlib sched secrets"
    " select selectors shelve shutil signal site socket ssl stat statistics string struct subprocess"
    " symbol sys tarfile tempfile test textwrap threading time timeit token tokenize trace traceback"
    " types typing unittest urllib uuid warnings weakref xml zipfile"
)
STDLIB = frozenset(NAMES.split())
"""Modules that torch's import needs: a file of that name in the working folder hides them."""

IN_A_BUILD = r"(?:Failed building wheel|Building wheels? for|bdist_wheel|build_ext\b|subprocess-exited-with-error|Building from source|metadata-generation-failed)"
"""What pip and setuptools print of a package that is compiled."""
