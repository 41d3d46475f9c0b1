"""Hides the values of variables: words with a known form are kept, all others get an alias.

Users write anything into a variable: a customer's name in a folder, a network or an option. Known
words are numbers and versions, GPUs, compute capabilities, usual names of network interfaces, and
the words below, from the documentation of CUDA, NCCL, torch, pip and uv.
"""

from __future__ import annotations

import re

from gpusetup.readings.packages import INSTALLERS
from gpusetup.redaction.folders import KNOWN_FOLDERS, Alias, is_known
from gpusetup.redaction.rules import compiled, vocabulary

KNOWN_WORDS = KNOWN_FOLDERS | INSTALLERS | frozenset(
    "on off true false yes no auto void none all never always only if-necessary disabled enabled error "  # noqa: SIM905
    "compute utility graphics video display ngx compat32 driver brand tesla quadro geforce titan grid vapps "
    "expandable_segments max_split_size_mb garbage_collection_threshold roundup_power2_divisions backend "
    "native cudamallocasync release_lock_on_cudamalloc pinned_use_cuda_host_register "
    "pinned_num_register_threads pinned_use_background_threads pinned_reserve_segment_size_mb "
    "max_non_split_rounding_mb per_process_memory_fraction use_uvm throw_on_cudamalloc_oom "
    "kepler maxwell pascal volta turing ampere ada hopper blackwell tegra common ptx "
    "info warn trace abort version init coll p2p shm net graph tuning env alloc call proxy nvls "
    "ring tree collnet collnetdirect collnetchain nvlstree pat simple ll ll128 allreduce "
    "loc nvl pix pxb phb sys nvb c2c ib socket ofi efa plugin group fault reg profile bootstrap ras "
    "intel gnu sequential tbb level_zero opencl fastest_first pci_bus_id lazy eager default_pg "
    "copy hardlink symlink clone first-index unsafe-first-match unsafe-best-match managed "
    "only-managed only-system cc cxx gcc g++ c++ clang clang++ icc icpx nvcc cl mpicc mpicxx ccache "
    "http https file ssh git ftp wsl vulkan dynamo aot inductor recompiles graph_breaks output_code guards base".split()
)  # fmt: skip
_KNOWN_FORM = (
    # A word of one or two characters, a version or a commit: `12.8`, `v2.5.1`, `3.11-0a1b2c`.
    r"(?i).{1,2}|v?\d[\d.]*(?:[a-z]{1,3}\d*)?(?:[.-](?:[0-9a-ftz]{1,40}|nv[\d.]+|post\d+|dev\d*))*"
    # `sm_90`, `cu128`, `cp311`, one of our aliases.
    r"|(?:sm|compute|gfx|cu|rocm|cp|py|dir|manylinux|musllinux)[_-]?\d[\w.]*|<[\w-]+>"
    # A hash, as in the versions of NVIDIA's containers; a variable inside a value.
    r"|[0-9a-f]{7,40}(?:\.nv[\d.]+)?|\$\{?(?:HOME|USER|PATH|LD_LIBRARY_PATH|CONDA_PREFIX|CUDA_HOME)"
    # The alias of a GPU, a compiler, a platform.
    r"|(?:mig-)?(?:gpu|mig)-[0-9a-f-]{0,40}|(?:gcc|g\+\+|clang)-\d+|(?:x86_64|aarch64)[\w-]*"
    # Usual names of network interfaces: `eth0`, `ib0`, `bond0.100`, `enp3s0f1`, `mlx5_0`.
    r"|(?:eth|ib|bond|docker|veth|virbr|br|team|wlan|hsn|roce|rdma|tun|tap|cni|cbr|flannel|gpu\d+rdma"
    r"|en[ospx]|ib[ps]|wl[ps]|mlx\d_(?:bond_)?|mlx|bnxt_re|irdma|efa|qedr|hfi\d_?|cxi)\d*(?:(?:np|[spfndv_.])\d+)*"
)
_FILE = (
    r"(?i)(?P<stem>[^\\/]+?)(?P<kind>\.(?:so(?:\.[\d.]+)?|dll|dylib|py|json|toml|ya?ml|txt|cfg|conf|ini|log"
    r"|xml|pem|crt|sh|bat|zip|whl|gz|bin|pt))(?![^\\/])"
)
"""Matches a file at the end of a path: its name, and a common extension."""
_LIBRARY = r"(?i)lib(?:cu|nv|nccl|cuda|mkl|torch|c10|tcmalloc|jemalloc|stdc\+\+|gomp|iomp|gcc_s)[\w+-]{0,24}"
_WORD = r"<[\w-]+>|[^\s,;:=^+|!\"'()\[\]{}<>]+"


def hide_values(value: str, alias: Alias) -> str:
    """A variable's value with an alias in place of each unknown word.

    Folders, addresses and secrets in the value must already be hidden.

    >>> hide_values("8.0;9.0+PTX for acme; eth0,^lo,acme1; max_split_size_mb:128", lambda word: "?")
    '8.0;9.0+PTX ? ?; eth0,^lo,?; max_split_size_mb:128'
    """

    def with_alias(word: re.Match[str]) -> str:
        return _hide_word(word[0], alias)

    return re.sub(_WORD, with_alias, value)


def _hide_word(word: str, alias: Alias) -> str:
    """A word of a value with its unknown parts hidden: the unknown folders of a path, or the whole
    word."""

    def with_hidden_stem(file: re.Match[str]) -> str:
        stem = _hide_stem(file["stem"], alias)
        return stem + file["kind"]

    # The folders of an absolute path are already hidden, but its file name is not.
    if re.match(r"[~\\/]", word):
        return re.sub(_FILE, with_hidden_stem, word)

    parts = re.split(r"([\\/]+)", word)
    if len(parts) == 1:
        return word if _is_known_word(word) else alias(word)
    shown_parts = []
    for part in parts:
        stays = is_known(part) or _is_known_word(part)
        shown_parts.append(part if stays else alias(part))
    return "".join(shown_parts)


def _hide_stem(stem: str, alias: Alias) -> str:
    """A file's name without its extension, or the alias that replaces it."""
    if is_known(stem) or re.fullmatch(_LIBRARY, stem):
        return stem
    return alias(stem)


def _is_known_word(word: str) -> bool:
    """Whether a word of a value reveals nothing about the person who set the variable."""
    lower = word.lower()
    if lower in KNOWN_WORDS or lower in vocabulary():
        return True
    return compiled(_KNOWN_FORM).fullmatch(word) is not None
