"""Hides folder names: a home becomes `~`, and in paths below a private folder only known words are
kept.

`/home/N`, `/Users/N`, `C:\\Users\\N`, `/data/users/N`, `/scratch/N`, `/afs/.../N`, `~N`: homes can
be anywhere, so we only keep folder names from an allow-list. Below system folders (`/usr`,
`C:\\Windows`) everything is kept. Elsewhere, a folder with an unknown name gets an alias such as
`dir-1`, which is the same everywhere and needs no quotes in a shell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from gpusetup.redaction.rules import Match, Rule, apply, compiled, vocabulary

SOMEONE = "someone"
_NAME = r"[^\\/:*?\"'<>|;,\r\n\s()\[\]{}=`&]+"
"""A folder name without spaces that is also valid on Windows."""
_SPACED = rf"{_NAME}(?: {_NAME}){{1,2}}(?=[\\/>'\"])"
r"""A name with spaces, up to a separator or a quote: `Jane Doe\`."""
_WHO = rf"(?P<who>(?!<){_SPACED}|(?!<){_NAME})"
_INITIAL = r"(?:(?P<first>[a-z0-9])[\\/](?:(?P=first)[a-z0-9][\\/])?(?=(?P=first)))?"
"""Extra levels at sites with many users: `/home/a/alice`, `/afs/cell/user/a/al/alice`."""
_SEP = r"(?:\\{1,4}|/{1,2})"
"""A path separator; it may be doubled, as in JSON strings: `C:\\Users`."""
_START = r"(?:(?<![A-Za-z0-9])[A-Za-z]:|(?<![\w.~>-]))"
"""A drive, or the beginning of a path. The `b:` in `/usr/lib:/home` is not a drive."""
_FOLDERS_ABOVE = rf"(?:{_SEP}[\w.$@-]{{1,80}}){{0,12}}?"

_HOMES = (
    # Homes on Windows: `C:\Users\Jane Doe`, `C:\Documents and Settings\jane`.
    rf"(?i){_START}{_FOLDERS_ABOVE}{_SEP}(?:Users|Documents and Settings){_SEP}(?!Public\b|Default\b|All Users\b){_WHO}",
    # Homes below a folder `home`: `/home/jane`, `/cluster/home2/j/jane`, `\\server\home$\jane`.
    rf"(?i){_START}{_FOLDERS_ABOVE}{_SEP}homes?\d{{0,3}}\$?{_SEP}{_INITIAL}{_WHO}",
    # Homes below other usual folders: `/data/users/jane`, `/u/jane`, `/students/jane`.
    rf"{_START}{_FOLDERS_ABOVE}{_SEP}(?:users?|people|staff|students?|faculty|members|accounts|u|uhome|usr\d+|profiles?\$?){_SEP}{_INITIAL}{_WHO}",
    # `/root`, the home of root.
    r"(?<![\w./~-])/(?P<who>root)(?![\w-])",
    # `~jane/model`, a shell's form for jane's home.
    r"(?<![\w./\\~-])~(?P<who>[A-Za-z_][\w.-]*)(?=[\\/\s:;,)\"']|$)",
)  # fmt: skip
"""Matches home folders of any user; the name is in the group `who`."""

_FOLDERS_OF_PEOPLE = (
    # Any number of parent folders before it.
    rf"(?P<way>(?<![\w.~>-])(?:/[\w.$@-]{{1,80}}){{0,12}}?/"
    # Fast storage and work folders: `/scratch/jane`, `/gpfs01/jane`, `/work/jane`.
    r"(?:\w*scratch[\w-]*|nobackup|work\d*|projects?|groups?|gpfs[\w-]*|lustre[\w-]*|beegfs|ceph\w*|nfs[\w-]*|fsx"
    # Network and mounted disks: `/mnt/jane`, `/run/media/jane`, `/Volumes/jane`.
    rf"|netapp|media|run/media|Volumes|mnt|data\d*|storage|vast|weka|efs|shared|team|teams|research"
    # Folders that system services keep for each user: `/var/mail/jane`.
    rf"|spool/cron(?:/crontabs)?|(?:spool|var)/mail|jupyterhub)/{_INITIAL})"
    rf"(?!<|home|users?/){_WHO}"
)
"""Matches folders outside the homes that contain users' files; the user's name is in the group
`who`."""

# --- paths -----------------------------------------------------------------------------------------

SYSTEM_ROOTS = frozenset(
    "usr lib lib64 lib32 bin sbin etc proc sys dev boot snap nix gnu cvmfs system library "  # noqa: SIM905
    "applications builddir pytorch".split()
)
"""Folders at the root that are filled by the system or a package, so all names below them are
public."""
SHARED_ROOTS = ("/dev/shm/", "/usr/local/")
"""Folders inside a system folder in which every user may create folders."""
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
"""Names of folders that reveal nothing about a person or a project."""
_KNOWN_FORM = (
    # A program with its version: `python3.11`, `cuda-12.8`, `cpython-3.12.1-linux-x86_64-gnu`.
    r"(?i)(?:python|py|cp|pypy|cpython|cuda|cudnn|torch|driver|nvidia|v|r|rocm|gcc|g)?-?\d[\d.x_-]*t?(?:-(?:linux|macos|windows)[\w.-]*)?"
    # `cu128`, `sm_90`, one of our aliases, `..`, `<host>`, the first digits of a hash.
    r"|(?:cu|sm_|rocm|dir-)\d+|~|\.{1,2}|<[\w-]+>|\*|[0-9a-f]{1,3}"
    # A file with an extension that programs use: `libcudart.so.12`, `train.py`.
    r"|[\w.+-]+\.(?:so(?:\.[\d.]+)?|py[cdiox]?|dll|dylib|exe|whl|egg|egg-link|dist-info|egg-info|pth|json|toml|ya?ml|txt|cfg|ini|log|cu|cuh|c|cc|cpp|h|hpp|hip|sh|bat|ps1|lock|md|tar\.gz|zip|conda|a|lib|bin|safetensors|pt|ckpt|ipynb|html|metadata)"
)  # fmt: skip

_LETTERS = r"[^\s:;,\"'<>|*?()\[\]{}=\\/`&$#!]+"
"""The characters of a folder name outside of quotes."""
_PART = rf"(?:<[\w-]+>|{_LETTERS})"
_POSIX_PATH = (
    # `/a/b`, `~/a` and `C:/a`, but not the end of a relative path, and not `//host` in a URL.
    rf"(?<![\w.>/~}}\\-])(?<!:(?=//))(?:~|[A-Za-z]:(?=/))?(?:/+{_PART})+/?"
    rf"|(?<![\w.>/~}}\\-])~(?:/+{_PART})+"
)
_WINDOWS_PART = rf"(?:<[\w-]+>|{_LETTERS}(?: {_LETTERS}){{0,3}}(?=\\)|{_LETTERS})"
"""A folder name of up to four words, if a separator follows."""
_WINDOWS_PATH = (
    # A path on a drive: `C:\a\b`, `~\a`.
    rf"(?<![\w>/\\])(?:~|[A-Za-z]:)(?:\\{{1,2}}{_WINDOWS_PART})+\\?"
    # A network share: `\\server\share\a`.
    rf"|(?<![\w>:\\])\\\\(?:<[\w-]+>|[\w.$-]+)(?:\\{_WINDOWS_PART})+"
)

Alias = Callable[[str], str]
"""A function that takes the name of a folder and returns the alias that replaces it."""


def people_in(text: str) -> Iterator[str]:
    """The names of people that occur in a text as home folders."""
    for pattern in _HOMES:
        for home in compiled(pattern).finditer(text):
            yield home["who"]
        # Replace the homes before the next search, because `user` in `/home/user/project` is not
        # another home.
        text = compiled(pattern).sub("~", text)
    for folder in compiled(_FOLDERS_OF_PEOPLE).finditer(text):
        if not is_known(folder["who"]):
            yield folder["who"]


def hide_homes(text: str) -> str:
    """The text with home folders replaced by `~`, and without names in other people's folders.

    >>> hide_homes("/data/users/alice/x C:\\\\Users\\\\Jane Doe\\\\x /scratch/alice/y /mnt/data/x")
    '~/x ~\\\\x /scratch/someone/y /mnt/data/x'
    """
    return apply(HOMES, text)


def _hide_person(folder: Match) -> str:
    """The path of a person's folder without the name: `/scratch/someone`."""
    if is_known(folder["who"]):
        return folder[0]
    return f"{folder['way']}{SOMEONE}"


HOMES: tuple[Rule, ...] = (
    *((pattern, "~") for pattern in _HOMES),
    (_FOLDERS_OF_PEOPLE, _hide_person),
)


def is_known(name: str) -> bool:
    """Whether a folder's name reveals nothing about a person or a project.

    >>> is_known("site-packages"), is_known("python3.11"), is_known("acme-fraud")
    (True, True, False)
    """
    word = name.lower()
    if word in KNOWN_FOLDERS or word in vocabulary():
        return True
    return compiled(_KNOWN_FORM).fullmatch(name) is not None


def folder_rules(alias: Alias) -> tuple[Rule, ...]:
    """The rules that replace every unknown folder of a private path with its alias.

    >>> rules = folder_rules(lambda name: "dir-1")
    >>> apply(rules, "~/acme/.venv/bin/python /usr/lib/acme /data/acme/torch")
    '~/dir-1/.venv/bin/python /usr/lib/acme /data/dir-1/torch'
    """

    def with_aliases(path: Match) -> str:
        return _hide_folders(path[0], alias)

    return (_POSIX_PATH, with_aliases), (_WINDOWS_PATH, with_aliases)


PACKAGES = ("site-packages", "dist-packages")
"""Folders of public packages, whose names reveal nothing."""


def _hide_folders(path: str, alias: Alias) -> str:
    """A path with unknown folders replaced by aliases. A path of the operating system stays as it
    is."""
    parts = re.split(r"(/|\\+)", path)
    names = [part.lower() for part in parts if part.strip("/\\")]
    if _is_of_system(path, names):
        return path

    # NVIDIA installs the same files everywhere: `/opt/nvidia/...`, `/mnt/nvidia/...`.
    is_public = "nvidia" in names[:2]
    shown_parts = []
    for part in parts:
        is_separator = not part.strip("/\\")
        is_drive = re.fullmatch(r"[A-Za-z]:", part) is not None
        stays = is_public or is_separator or is_drive or is_known(part)
        shown_parts.append(part if stays else alias(part))
        if part.lower() in PACKAGES:
            is_public = True
    return "".join(shown_parts)


def _is_of_system(path: str, names: list[str]) -> bool:
    """Whether a path belongs to the system; `names` are its folders in lower case."""
    if re.match(WINDOWS_ROOTS, path):
        return True
    if not path.startswith("/"):
        return False
    # `/word` without another slash is a Windows option or part of a sentence.
    if path.count("/") < 2:
        return True
    is_below_system_root = bool(names) and names[0] in SYSTEM_ROOTS
    return is_below_system_root and not path.startswith(SHARED_ROOTS)
