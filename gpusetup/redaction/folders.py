"""Folders: a home becomes `~`, and of the paths below a private folder only known words stay.

`/home/N`, `/Users/N`, `C:\\Users\\N`, `/data/users/N`, `/scratch/N`, `/afs/.../N`, `~N`: sites lay out
homes as they like, so this is an allow-list. Below a system's own folders (`/usr`, `C:\\Windows`)
everything stays; elsewhere a folder with an unknown name is `dir-1`, the same one everywhere: a word that every shell
takes as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from gpusetup.redaction.rules import Found, Rule, apply, compiled, vocabulary

SOMEONE = "someone"
_NAME = r"[^\\/:*?\"'<>|;,\r\n\s()\[\]{}=`&]+"
_SPACED = rf"{_NAME}(?: {_NAME}){{1,2}}(?=[\\/>'\"])"
_WHO = rf"(?P<who>(?!<){_SPACED}|(?!<){_NAME})"
_INITIAL = r"(?:(?P<first>[a-z0-9])[\\/](?:(?P=first)[a-z0-9][\\/])?(?=(?P=first)))?"
"""Sites with many people: `/home/a/alice`, `/afs/cell/user/a/al/alice`."""
_SEP = r"(?:\\{1,4}|/{1,2})"
_START = r"(?:(?<![A-Za-z0-9])[A-Za-z]:|(?<![\w.~>-]))"
"""A drive, or the beginning of a way: the `b:` in `/usr/lib:/home` is neither."""
_FOLDERS_ABOVE = rf"(?:{_SEP}[\w.$@-]{{1,80}}){{0,12}}?"

_HOMES = (
    rf"(?i){_START}{_FOLDERS_ABOVE}{_SEP}(?:Users|Documents and Settings){_SEP}(?!Public\b|Default\b|All Users\b){_WHO}",
    rf"(?i){_START}{_FOLDERS_ABOVE}{_SEP}homes?\d{{0,3}}\$?{_SEP}{_INITIAL}{_WHO}",
    rf"{_START}{_FOLDERS_ABOVE}{_SEP}(?:users?|people|staff|students?|faculty|members|accounts|u|uhome|usr\d+|profiles?\$?){_SEP}{_INITIAL}{_WHO}",
    r"(?<![\w./~-])/(?P<who>root)(?![\w-])",
    r"(?<![\w./\\~-])~(?P<who>[A-Za-z_][\w.-]*)(?=[\\/\s:;,)\"']|$)",
)  # fmt: skip
"""Home folders of anybody; the name is the group `who`."""

_FOLDERS_OF_PEOPLE = (rf"(?P<way>(?<![\w.~>-])(?:/[\w.$@-]{{1,80}}){{0,12}}?/(?:\w*scratch[\w-]*|nobackup|work\d*|projects?|groups?|gpfs[\w-]*|lustre[\w-]*|beegfs|ceph\w*|nfs[\w-]*|fsx"
    rf"|netapp|media|run/media|Volumes|mnt|data\d*|storage|vast|weka|efs|shared|team|teams|research|spool/cron(?:/crontabs)?|(?:spool|var)/mail|jupyterhub)/{_INITIAL})(?!<|home|users?/){_WHO}")  # fmt: skip
"""Where sites keep what belongs to people beside their homes; the name is the group `who`."""

# --- paths -----------------------------------------------------------------------------------------

SYSTEM_ROOTS = frozenset(
    "usr lib lib64 lib32 bin sbin etc proc sys dev boot snap nix gnu cvmfs system library "  # noqa: SIM905
    "applications builddir pytorch".split()
)
SHARED_ROOTS = ("/dev/shm/", "/usr/local/")
"""Below these anybody makes folders, whatever stands above."""
WINDOWS_ROOTS = r"(?i)[A-Z]:(?:\\\\|[\\/])(?:windows|program files(?: \(x86\))?|python\d*)(?:[\\/]|$)"  # fmt: skip

KNOWN_FOLDERS = frozenset(
    "someone project projects src source code dev work repo repos git workspace env envs venv venvs .venv "  # noqa: SIM905
    ".env .virtualenvs virtualenvs miniconda miniconda3 anaconda anaconda3 miniforge3 mambaforge "
    "micromamba mamba conda .conda .mamba .pixi pixi default pkgs .cache cache caches .local local "
    ".pyenv pyenv versions shims .config config share state lib lib64 libs bin sbin include etc "
    "scripts site-packages dist-packages pip uv tools tool python cpython http http-v2 wheels wheel "
    "archive-v0 builds-v0 simple-v15 wheels-v5 huggingface hub torch_extensions triton inductor "
    "torchinductor nvidia cuda cudnn cublas nccl nvjitlink cusparse cusolver cusparselt cufft "
    "curand cuda_runtime cuda_nvrtc nvrtc cupti nvtx compat stubs extras targets x86_64-linux "
    "sbsa-linux x86_64-linux-gnu aarch64-linux-gnu compute utils ops csrc core internal _internal "
    "distributed data models model datasets dataset checkpoints logs log output outputs runs test "
    "tests examples docs build dist tmp temp home users user user.venv appdata roaming programs "
    "microsoft windowsapps windows desktop documents downloads onedrive jovyan ubuntu runner app "
    "application scratch mnt storage shared media volumes nfs lustre gpfs ssd hdd nvme disk "
    "jupyter notebooks kernels ipykernel spark library frameworks python.framework current "
    "opt var run boot private content kaggle databricks programdata input working drive mydrive "
    "rocm intel oneapi hpcx amazon aws google nvidia hpc_sdk nsight-systems ollama spool cron "
    "crontabs mail log lock user systemd docker containerd kubelet overlay2 snapshots merged diff "
    "software apps easybuild spack modules modulefiles module easyconfigs core arch avx2 avx512 "
    "gcc gcccore openmpi mpich python pytorch foss fosscuda goolf intel-oneapi cray pe "
    "homebrew linuxbrew cellar resources contents lib-dynload whl simple encodings importlib multiprocessing asyncio ".split()
)
"""Names of folders that say nothing of a person or a project."""
_KNOWN_FORM = (r"(?i)(?:python|py|cp|pypy|cpython|cuda|cudnn|torch|driver|nvidia|v|r|rocm|gcc|g)?-?\d[\d.x_-]*t?(?:-(?:linux|macos|windows)[\w.-]*)?"
    r"|(?:cu|sm_|rocm|dir-)\d+|~|\.{1,2}|<[\w-]+>|\*|[0-9a-f]{1,3}"
    r"|[\w.+-]+\.(?:so(?:\.[\d.]+)?|py[cdiox]?|dll|dylib|exe|whl|egg|egg-link|dist-info|egg-info|pth|json|toml|ya?ml|txt|cfg|ini|log|cu|cuh|c|cc|cpp|h|hpp|hip|sh|bat|ps1|lock|md|tar\.gz|zip|conda|a|lib|bin|safetensors|pt|ckpt|ipynb|html|metadata)")  # fmt: skip

_PART = r"(?:<[\w-]+>|[^\s:;,\"'<>|*?()\[\]{}=\\/`&$#!]+)"
_POSIX_PATH = rf"(?<![\w.>/~}}\\-])(?<!:(?=//))(?:~|[A-Za-z]:(?=/))?(?:/+{_PART})+/?|(?<![\w.>/~}}\\-])~(?:/+{_PART})+"
_WINDOWS_PART = r"(?:<[\w-]+>|[^\s:;,\"'<>|*?()\[\]{}=\\/`&$#!]+(?: [^\s:;,\"'<>|*?()\[\]{}=\\/`&$#!]+){0,3}(?=\\)|[^\s:;,\"'<>|*?()\[\]{}=\\/`&$#!]+)"
_WINDOWS_PATH = rf"(?<![\w>/\\])(?:~|[A-Za-z]:)(?:\\{{1,2}}{_WINDOWS_PART})+\\?|(?<![\w>:\\])\\\\(?:<[\w-]+>|[\w.$-]+)(?:\\{_WINDOWS_PART})+"  # fmt: skip

Alias = Callable[[str], str]
"""The name of a folder -> what stands for it."""


def people_in(text: str) -> Iterator[str]:
    """The names of people that the home folders of a text show."""
    for pattern in _HOMES:
        yield from (match["who"] for match in compiled(pattern).finditer(text))
        # `/home/user/project`: the folder `user` is no second home
        text = compiled(pattern).sub("~", text)
    yield from (
        m["who"] for m in compiled(_FOLDERS_OF_PEOPLE).finditer(text) if not is_known(m["who"])
    )


def hide_homes(text: str) -> str:
    """Text whose home folders are `~`, and whose people's folders have no name.

    >>> hide_homes("/data/users/alice/x C:\\\\Users\\\\Jane Doe\\\\x /scratch/alice/y /mnt/data/x")
    '~/x ~\\\\x /scratch/someone/y /mnt/data/x'
    """
    return apply(HOMES, text)


def _hide_person(match: Found) -> str:
    return match[0] if is_known(match["who"]) else f"{match['way']}{SOMEONE}"


HOMES: tuple[Rule, ...] = (
    *((pattern, "~") for pattern in _HOMES),
    (_FOLDERS_OF_PEOPLE, _hide_person),
)


def is_known(name: str) -> bool:
    """Whether a folder's name says nothing of a person or a project.

    >>> is_known("site-packages"), is_known("python3.11"), is_known("acme-fraud")
    (True, True, False)
    """
    low = name.lower()
    return (
        low in KNOWN_FOLDERS
        or low in vocabulary()
        or compiled(_KNOWN_FORM).fullmatch(name) is not None
    )


def folder_rules(alias: Alias) -> tuple[Rule, ...]:
    """In private paths every unknown folder has an alias.

    >>> rules = folder_rules(lambda name: "dir-1")
    >>> apply(rules, "~/acme/.venv/bin/python /usr/lib/acme /data/acme/torch")
    '~/dir-1/.venv/bin/python /usr/lib/acme /data/dir-1/torch'
    """
    return tuple(
        (path, lambda found: _hide_folders(found[0], alias))
        for path in (_POSIX_PATH, _WINDOWS_PATH)
    )


PACKAGES = ("site-packages", "dist-packages")
"""Below these stand packages that everybody may have."""


def _hide_folders(path: str, alias: Alias) -> str:
    parts = re.split(r"(/|\\+)", path)
    names = [part.lower() for part in parts if part.strip("/\\")]
    system = names[:1] and names[0] in SYSTEM_ROOTS and not path.startswith(SHARED_ROOTS)
    if re.match(WINDOWS_ROOTS, path) or (path[0] == "/" and (system or path.count("/") < 2)):
        return path
    inside, found = "nvidia" in names[:2], []
    for part in parts:
        plain = inside or not part.strip("/\\") or re.fullmatch(r"[A-Za-z]:", part)
        found.append(part if plain or is_known(part) else alias(part))
        inside = inside or part.lower() in PACKAGES
    return "".join(found)
