"""Lists and logs of pip, uv and conda: what is installed, what was asked for, what was not found."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.accelerators.makers import LABEL
from gpusetup.model.machine import Event, Package
from gpusetup.model.patterns import lazy
from gpusetup.report.facts import GUESS, HINT, SURE, USUAL, Claim, Fact
from gpusetup.report.messages import event
from gpusetup.report.text import Text

# --- what is installed ----------------------------------------------------------------------------

PIP_ROW = lazy(r"^([A-Za-z][\w.-]{1,40}) {1,40}(\d[\w.+!-]{0,40})(?: {2,}\S.*)?$")
FREEZE_ROW = lazy(r"^([A-Za-z][\w.-]{1,40})==(\d[\w.+!-]{0,40})$")
CONDA_ROW = lazy(r"^([a-z_][\w.-]{1,40}) {1,40}(\d[\w.+!]{0,40}) {1,30}([\w.]{1,60}_\w*|\w{1,12}|pypi_0)(?: {1,30}\[[\w,]{2,30}\])?(?: {1,30}([\w./-]{2,60}))?$")  # fmt: skip
ROW = lazy(r"[A-Za-z_][\w.-]{1,40}(?: {1,40}|==)\d")
"""How each of these rows begins."""
CHANNEL = lazy(r"conda-forge|pytorch|nvidia|defaults|pypi|main|pkgs/")
INLINE = (
    (lazy(r"already satisfied: (torch\w*|nvidia-[\w-]+|triton\S*?|numpy)(?:[=<>!~]\S{1,30})? in .{3,200}? \(([\d.]+\w*(?:\+[\w.]+)?)\)"), "pip"),
    (lazy(r"(?<!\S)\+ (torch\w*|nvidia-[\w-]+|jax-cuda[\w-]+|triton|numpy)==(\d[\w.+]*)"), "uv"),
    (lazy(r"\b(torchvision|torchaudio|xformers|torch) (\d[\w.+]*) (?:requires|has requirement) "), None),
    (lazy(r"(?i)\b(vllm|sglang|lmdeploy)(?:(?: API server)? version:?|:) {1,2}v?(\d{1,2}\.\d[\w.+]*\w)"), None),
    (lazy(r"but you(?:'ll)? have (torch\w*|numpy) (\d[\w.+]*\w)"), None),
    (lazy(r"(?<!\S)(torchvision|torchaudio) (\d[\w.+]*\w) @(?=[/A-Z])"), None),
    (lazy(r'"(torchvision|torchaudio|xformers|numpy|triton)" ?: ?"(\d[\w.+]*\w)"'), None),
    (lazy(r"Name: (torch\w*|triton|numpy|xformers) Version: (\d[\w.+]*)"), "pip"),
    (lazy(r"\b(torchvision|torchaudio|triton|numpy|xformers|nvidia-[\w-]+|jax-cuda\d\d-\w+)-(\d[\w.+]*\w)(?= |$)"), "installed"),
)  # fmt: skip
RELEVANT = lazy(
    "torch|nvidia-|numpy|mkl|triton|cuda|cudnn|nccl|xformers|libstdcxx|vllm|sglang|lmdeploy"
)
INSTALLED_SPAN = 3000
FAILED = ("no matching distribution", "could not find a version", "no solution found", "resolutionimpossible")  # fmt: skip


def packages(text: Text) -> Iterator[Fact]:
    """Distributions that the text shows as installed."""
    if not RELEVANT.search(text.low):
        return
    yield from listed(text)
    yield from spoken_of(text)


def listed(text: Text) -> Iterator[Package]:
    """Rows of `pip list`, `pip freeze`, `conda list`."""
    wanting = any(word in text.low for word in FAILED) or "requirements" in text.low[:4000]
    for line in text.lines:
        if not 4 < len(line) < 140 or line[0] == "[":
            continue
        row = line.strip()
        if not ROW.match(row) or not RELEVANT.search(row[:40].lower()):
            continue
        if (conda := CONDA_ROW.match(row)) and (conda.group(4) is None or CHANNEL.search(row)):
            yield from _conda(*conda.groups())
        elif pip := PIP_ROW.match(row):
            yield from _watched(pip.group(1), pip.group(2), "pip")
        elif not wanting and (frozen := FREEZE_ROW.match(row)):
            yield from _watched(frozen.group(1), frozen.group(2), "pip")


def _conda(name: str, version: str, build: str, channel: str | None) -> Iterator[Package]:
    by = "pip" if build.startswith("pypi") or channel == "pypi" else "conda"
    for package in _watched(name, version, by):
        yield Package(
            name=package.name,
            version=version,
            installer=by,
            build=build if by == "conda" else None,
            channel=channel,
        )


def _watched(name: str, version: str, installer: str | None) -> Iterator[Package]:
    from gpusetup.readings.packages import CONDA_WATCHED, is_watched, normalised

    plain = normalised(name)
    if is_watched(plain) or plain in CONDA_WATCHED:
        yield Package(name=plain, version=version, installer=installer)


def spoken_of(text: Text) -> Iterator[Package]:
    """Distributions in the sentences of installers."""
    done = text.low.find("successfully installed")
    for pattern, installer in INLINE:
        if installer != "installed":
            scope = text.flat
        elif done >= 0:
            scope = text.flat[done : done + INSTALLED_SPAN]
        else:
            continue
        for name, version in pattern.findall(scope[:1_000_000])[:60]:
            yield from _watched(name, version, "pip" if installer == "installed" else installer)


# --- what was asked for ---------------------------------------------------------------------------

COMMAND = lazy(r"\b(?:uv )?(?:pip3?|python\S* -m pip|uv|conda|mamba|micromamba|pixi|poetry)(?:\.exe)? (?:pip )?(?:install|add|create|sync|run)\b.{0,600}")  # fmt: skip
INDEX = lazy(rf"https?://download\.pytorch\.org/whl/(?:nightly/|test/|lts/[\d.]+/)?({LABEL})\b")  # fmt: skip
PIN = lazy(r"(?<![\w.-])(?:py)?torch(?:\[\w+\])? ?(?P<op>==?|~=|<=|>=|<)(?P<version>\d{1,2}(?:\.\d{1,3}){0,2}(?:\.?(?:dev|rc|post|a|b)\d*)?(?:\.\*)?)(?:\+(?P<label>[a-z]+[\d.]*))?")  # fmt: skip
COMPANION_PIN = lazy(r"\b(?P<companion>torch(?:vision|audio)) ?==(?P<version>\d{1,2}(?:\.\d{1,3}){2})(?:\+(?P<label>[a-z]+[\d.]*))?")  # fmt: skip
INSTALLS_TORCH = lazy(r"(pip3?|python\S* -m pip|conda|mamba|micromamba) (?:install|create)\b.{0,80}?[ :'\"](?:py)?torch(?:[-=<>~ '\"]|$)")  # fmt: skip
CONDA_CUDA = lazy(r"(?:pytorch-cuda|cudatoolkit|cuda-version) ?={1,2}(\d{1,2}\.\d)")
REQUIREMENT = lazy(
    r"satisfies the requirement (?P<requirement>torch\w*(?:\[\w+\])?(?:[=<>!~]{1,2}\S{1,60}?)?) ?\(from versions:? (?P<versions>(?:(?! ERROR)[^)]){0,6000})\)?"
    r"|No matching distribution found for (?P<only>torch\w*(?:[=<>!~]{1,2}[\w.+*,<>=!~]{1,60})?)(?![\w-])"
)
LOCKED = lazy(r"Distribution `torch==(?P<version>[\d.]+)(?:\+(?P<label>\w+))?")
LOCKED_INDEX = lazy(rf"\S{{0,16}} @ registry\+{INDEX.pattern}")
UV_PIN = lazy(r"(?:you require|depends on|requires|Because|and) torch(?:\{[^}]{1,60}\})?==(?P<version>\d[\d.]*\d)(?:\+(?P<label>\w+))?")  # fmt: skip
IN_WORDS = lazy(r"(?i)\b(?:install|select|choose|want)\w{0,3} (?:the )?(?:py)?torch (?P<op>)(?P<version>\d\.\d{1,2}(?:\.\d)?) (?:on|for|with) cuda (?P<cuda>\d\d\.\d)")  # fmt: skip
"""`I selected the command to install torch 2.8 on cuda 12.8`."""
VERSIONS_KEPT = 900


def wanted(text: Text) -> Iterator[Fact]:
    """The request that the text shows: a pin, a wheel tag, the CUDA of an extension build."""
    yield from refused(text)
    yield from asked(text)
    yield from extension_cuda(text)


def refused(text: Text) -> Iterator[Fact]:
    """pip's `Could not find a version`, with the versions that it did see."""
    seen: set[str] = set()
    for needle in ("satisfies the requirement torch", "no matching distribution found for torch"):
        for start, window in text.near(needle):
            said = sorted(REQUIREMENT.finditer(window), key=lambda one: one["versions"] is None)
            for found in said:
                requirement = (found["requirement"] or found["only"]).rstrip(".,'\"")
                if requirement in seen:
                    continue
                seen.add(requirement)
                yield from _refused(text, start + found.start(), found, requirement)


def _refused(text: Text, place: int, found: re.Match[str], requirement: str) -> Iterator[Fact]:
    versions = (found["versions"] or "").strip()
    values = {"requirement": requirement}
    if versions:
        none = versions.startswith("none")
        values |= {"none_found": str(none).lower()}
        values |= {} if none else {"versions": versions[:VERSIONS_KEPT]}
    if index := _index_near(text):
        values["index"] = index
    yield event(text, "no-matching-distribution", place, place + len(found.group()[:300]), values)
    pin = PIN.search(requirement)
    if pin and requirement[5:6] in ("=", "<", ">", "~", "["):
        yield from _pinned(pin, text.source(place), SURE)
    elif beside := COMPANION_PIN.match(requirement):
        yield from _pinned(beside, text.source(place), SURE)


def _index_near(text: Text) -> str | None:
    found = INDEX.search(text.flat)
    return found.group(1) if found else None


def asked(text: Text) -> Iterator[Fact]:
    """Commands that install torch, and what a locked project asks for."""
    if "torch" not in text.low:
        return
    for needle, trust in ((" install", USUAL), ("uv add", USUAL), ("uv sync", HINT), ("create", HINT)):  # fmt: skip
        for start, window in text.near(needle):
            for found in COMMAND.finditer(window):
                yield from _of_command(found.group(), text.source(start + found.start()), trust)
    if "looking in indexes" in text.low and (index := INDEX.search(text.flat)):
        source = text.source(index.start())
        yield Claim(subject="wanted.backend", value=index.group(1), source=source, trust=USUAL)
    for pattern in (LOCKED, UV_PIN, IN_WORDS):
        if "torch" in text.low and (locked := pattern.search(text.flat[:1_000_000])):
            yield from _pinned(locked, text.source(locked.start()), USUAL)
            if index := LOCKED_INDEX.match(text.flat, locked.end()):
                source = text.source(index.start())
                yield Claim(
                    subject="wanted.backend", value=index.group(1), source=source, trust=USUAL
                )


def _of_command(command: str, source: str, trust: int) -> Iterator[Fact]:
    command = _one_command(command)
    if "torch" not in command:
        return
    if by := INSTALLS_TORCH.match(command):
        name = "pip" if "pip" in by[1] else "conda"
        yield Claim(subject="torch.installer", value=name, source=source, trust=HINT)
    if index := INDEX.search(command):
        yield Claim(subject="wanted.backend", value=index.group(1), source=source, trust=trust)
    if pin := PIN.search(command):
        yield from _pinned(pin, source, trust)
    elif beside := COMPANION_PIN.search(command):
        yield from _pinned(beside, source, trust)
    if cuda := CONDA_CUDA.search(command):
        yield Claim(subject="wanted.cuda", value=cuda.group(1), source=source, trust=HINT)


def _one_command(command: str) -> str:
    """Up to where the program's answer begins."""
    ends = (" Looking in ", " Collecting ", " ERROR", " Requirement already", " Channels:",
            " Solving ", " error:", " Resolved ", " Traceback", " WARNING", " DEBUG ", " Installed ", " Prepared ", " + ", " >>>", " $ ", " && ")  # fmt: skip
    cuts = [place for end in ends if (place := command.find(end)) > 0]
    return command[: min(cuts)] if cuts else command[:400]


def _pinned(found: re.Match[str], source: str, trust: int) -> Iterator[Fact]:
    """`torch==2.5.1+cu124` is a pin and a backend; `torch=2.5` of conda is a release."""
    groups = found.groupdict()
    version, op = groups["version"], groups.get("op") or "=="
    if op == "=" or (op == "==" and version.count(".") < 2 and "*" not in version):
        spec = f"=={version.removesuffix('.*')}.*"
    else:
        spec = f"{op}{version}"
    if companion := groups.get("companion"):
        spec = f"{companion}{spec}"
    subject = "wanted.companion" if companion else "wanted.torch"
    yield Claim(subject=subject, value=spec, source=source, trust=trust)
    cuda = groups.get("cuda")
    if label := groups.get("label") or (cuda and f"cu{cuda.replace('.', '')}"):
        yield Claim(subject="wanted.backend", value=label, source=source, trust=trust)


MISMATCH = lazy(r"use the same CUDA versions\.', '(\d{1,2}\.\d)', '|detected CUDA version \((\d{1,2}\.\d)[\d.]*\) (?:mismatches|has)|Installed CUDA version (\d{1,2}\.\d) does not match")  # fmt: skip


def extension_cuda(text: Text) -> Iterator[Fact]:
    """An extension is built by this nvcc: a torch of the same CUDA is what it needs."""
    if "cuda version" in text.low and (found := MISMATCH.search(text.flat)):
        version = next(group for group in found.groups() if group)
        source = text.source(found.start())
        yield Claim(subject="wanted.cuda", value=version, source=source, trust=SURE)


CONDA_SPEC = lazy(r"\bpytorch-(?P<torch>\d{1,2}\.\d{1,2}\.\d{1,2})-\w{0,24}py(?P<major>3)\.?(?P<minor>\d{1,2})")  # fmt: skip
"""A conda package by its file name: release, and the Python in its build string."""


UV_SOLVES = lazy(r"No solution found when resolving (?:dependencies|tool|script)")


UV_TYPED = lazy(
    r"^(?:.{0,100}[$>#%❯]|[-*`]{1,3})?\s?uv (?:pip (?:install|sync|compile)|sync|add|lock)\b"
)


UV_PROJECT = lazy(
    r"\buv (?:sync|lock|add|run (?!-[wis]|--(?:with|no-project|isolated|script)))\b|\buv\.lock\b"
    r"|\[\[?tool\.uv\b"
)
"""What is typed in a project of uv's, and what lies there (uv, Working on projects)."""


def typed_uv(text: Text) -> Iterator[Fact]:
    """A project of uv's, else a command line of uv."""
    if "uv" in text.low and (found := UV_PROJECT.search(text.flat[:1_000_000])):
        source = text.source(found.start())
        yield Claim(subject="python.manager", value="uv project", source=source, trust=SURE)
    if "uv " not in text.low:
        return
    for number, line in enumerate(text.lines):
        if "uv " in line[:120] and UV_TYPED.match(line.strip()):
            source = f"report, line {number + 1}"
            yield Claim(subject="python.manager", value="uv", source=source, trust=USUAL)
            return


def pip_state(text: Text) -> Iterator[Fact]:
    """The target's kind, where an installer names it."""
    rows = (
        ("using python ", r"Using (?:C?Python )(\d\.\d{1,2}(?:\.\d{1,2})?) (?:environment|interpreter)", "uv"),
        ("using cpython ", r"Using CPython (\d\.\d{1,2}(?:\.\d{1,2})?)", "uv"),
    )  # fmt: skip
    for needle, pattern, manager in rows:
        if needle in text.low and (found := re.search(pattern, text.flat)):
            source = text.source(found.start())
            yield Claim(subject="python.version", value=found.group(1), source=source, trust=SURE)
            yield Claim(subject="python.manager", value=manager, source=source, trust=USUAL)
    if "no solution found" in text.low and (found := UV_SOLVES.search(text.flat)):
        source = text.source(found.start())
        yield Claim(subject="python.manager", value="uv", source=source, trust=USUAL)
    yield from typed_uv(text)
    if "pytorch" in text.low and (found := CONDA_SPEC.search(text.flat[:1_000_000])):
        source = text.source(found.start())
        version = f"{found['major']}.{found['minor']}"
        yield Claim(subject="python.version", value=version, source=source, trust=GUESS)
        spec = f"=={found['torch']}"
        yield Claim(subject="wanted.torch", value=spec, source=source, trust=GUESS)
    if "cannot uninstall 'torch'" in text.low:
        yield Event(kind="installed-by-two", values={"name": "torch"}, source="pip")
