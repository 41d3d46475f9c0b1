"""Lists and logs of pip, uv and conda: what is installed, what was asked for, what was not found."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.accelerators.makers import LABEL
from gpusetup.messages.search import Text, event
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event, Package
from gpusetup.model.patterns import lazy
from gpusetup.report.facts import HINT, SURE, USUAL, Claim, Facts

# --- what is installed ----------------------------------------------------------------------------

PACKAGE_ROW = lazy(
    r"\s*(?P<by>\[(?:pip3?|conda)\] )?(?P<name>[A-Za-z_][\w.-]{1,40})(?P<sign> {1,40}|==)(?P<version>\d[\w.+!-]{0,40})"
    r"(?: {1,30}(?P<build>[\w.]{1,60}_\w*|\w{1,12}|pypi_0)(?: {1,30}\[[\w,]{2,30}\])?(?: {1,30}(?P<channel>[\w./-]{2,60}))?| {2,}\S.*)?$"
)
"""`pip list`, `pip freeze`, `conda list`, and how `collect_env` repeats them."""
CHANNEL = lazy(r"conda-forge|pytorch|nvidia|defaults|pypi|main|pkgs/")
IN_SENTENCES = (
    ("already satisfied", "pip", lazy(r"already satisfied: (torch\w*|nvidia-[\w-]+|triton\S*?|numpy)(?:[=<>!~]\S{1,30})? in .{3,200}? \(([\d.]+\w*(?:\+[\w.]+)?)\)")),
    (":", None, lazy(r"(?i)\b(?=[vsl])(vllm|sglang|lmdeploy)(?:(?: API server)? version:?|:) {1,2}v?(\d{1,2}\.\d[\w.+]*\w)")),
)  # fmt: skip
"""In the sentences of installers."""
RELEVANT = lazy(
    "torch|nvidia-|numpy|mkl|triton|cuda|cudnn|nccl|xformers|libstdcxx|vllm|sglang|lmdeploy"
)
RESOLUTION_FAILED = ("no matching distribution", "could not find a version", "no solution found", "resolutionimpossible")  # fmt: skip
CHARACTERS_READ = 1_000_000


def packages(text: Text) -> Facts:
    """Distributions that the text shows as installed."""
    if not RELEVANT.search(text.low):
        return
    failed = any(words in text.low for words in RESOLUTION_FAILED)
    lists_requirements = failed or "requirements" in text.low[:4000]
    for line in text.lines:
        if not 4 < len(line) < 140 or not RELEVANT.search(line.lower()):
            continue
        row = PACKAGE_ROW.match(line)
        if row is None or (lists_requirements and row["sign"] == "==" and not row["by"]):
            continue
        package = Package(name=row["name"], version=row["version"])
        build, channel = row["build"], row["channel"]
        if build and row["sign"] != "==" and (channel is None or CHANNEL.search(line)):
            if build.startswith("pypi") or channel == "pypi":
                package = replace(package, installer="pip", channel=channel)
            else:
                package = replace(package, installer="conda", build=build, channel=channel)
        elif not row["by"]:
            package = replace(package, installer="pip")
        yield from if_watched(package)
    for needle, installer, pattern in IN_SENTENCES:
        shown = pattern.findall(text.flat[:CHARACTERS_READ])[:60] if needle in text.flat else ()
        for name, version in shown:
            yield from if_watched(Package(name=name, version=version, installer=installer))
    if "cannot uninstall 'torch'" in text.low:
        yield Event(kind="installed-by-two", values={"name": "torch"}, source="pip")


def if_watched(package: Package) -> Iterator[Package]:
    from gpusetup.readings.packages import CONDA_WATCHED, is_watched, normalised

    name = normalised(package.name)
    if is_watched(name) or name in CONDA_WATCHED:
        yield replace(package, name=name)


# --- what was asked for ---------------------------------------------------------------------------

COMMAND = lazy(r"\b(?:uv )?(?:pip3?|python\S* -m pip|uv|conda|mamba|micromamba|pixi|poetry)(?:\.exe)? (?:pip )?(?:install|add|create|sync|run)\b.{0,400}")  # fmt: skip
OUTPUT_STARTS = lazy(r" (?:Looking in|Collecting|ERROR|Requirement already|Channels:|Solving|error:|Resolved|Traceback|WARNING|DEBUG|Installed|Prepared|\+|>>>|\$|&&) ")  # fmt: skip
"""Where what was typed ends."""
INDEX = lazy(rf"https?://download\.pytorch\.org/whl/(?:nightly/|test/|lts/[\d.]+/)?({LABEL})\b")  # fmt: skip
PIN = lazy(r"(?<![\w.-])(?:py)?torch(?:\[\w+\])? ?(?P<op>==?|~=|<=|>=|<)(?P<version>\d{1,2}(?:\.\d{1,3}){0,2}(?:\.?(?:dev|rc|post|a|b)\d*)?(?:\.\*)?)(?:\+(?P<label>[a-z]+[\d.]*))?")  # fmt: skip
COMPANION_PIN = lazy(r"\b(?P<companion>torch(?:vision|audio)) ?==(?P<version>\d{1,2}(?:\.\d{1,3}){2})(?:\+(?P<label>[a-z]+[\d.]*))?")  # fmt: skip
REQUIREMENT = lazy(
    r"satisfies the requirement (?P<requirement>torch\w*(?:\[\w+\])?(?:[=<>!~]{1,2}\S{1,60}?)?) ?\(from versions:? (?P<versions>(?:(?! ERROR)[^)]){0,6000})\)?"
    r"|No matching distribution found for (?P<only>torch\w*(?:[=<>!~]{1,2}[\w.+*,<>=!~]{1,60})?)(?![\w-])"
)
LOCKED_TORCH = (
    lazy(rf"Distribution `torch==(?P<version>[\d.]+)(?:\+(?P<label>\w+))?(?:\S{{0,16}} @ registry\+{INDEX.pattern})?"),
    lazy(r"(?:you require|depends on|requires|Because|and) torch(?:\{[^}]{1,60}\})?==(?P<version>\d[\d.]*\d)(?:\+(?P<label>\w+))?"),
)  # fmt: skip
MAX_CHARACTERS = 900


def request_claims(text: Text) -> Facts:
    """The request that the text shows: a pin, a wheel tag, what was refused."""
    if "torch" not in text.low:
        return
    yield from refusals(text)
    for needle, trust in ((" install", USUAL), ("uv add", USUAL), ("uv sync", HINT), ("create", HINT)):  # fmt: skip
        for start, window in text.near(needle):
            for found in COMMAND.finditer(window):
                command, source = (
                    OUTPUT_STARTS.split(found[0])[0],
                    text.source(start + found.start()),
                )
                if "torch" in command:
                    yield from pin_claims(command, source, trust)
                    yield from index_claims(INDEX.search(command), source)
    if "looking in indexes" in text.low:
        yield from index_claims(INDEX.search(text.flat), "pip")
    for pattern in LOCKED_TORCH:
        if locked := pattern.search(text.flat[:CHARACTERS_READ]):
            source = text.source(locked.start())
            yield from claims_of_pin(locked, source, USUAL)
            yield from index_claims(INDEX.search(locked[0]), source)


def index_claims(found: re.Match[str] | None, source: str) -> Iterator[Claim]:
    if found:
        yield Claim("wanted.backend", found[1], source)


def refusals(text: Text) -> Facts:
    """pip's `Could not find a version`, with the versions that it did see."""
    index = INDEX.search(text.flat)
    for requirement, place, found in refused_requirements(text):
        versions = (found["versions"] or "").strip()
        none = versions.startswith("none")
        values = {
            "requirement": requirement,
            "none_found": str(none).lower() if versions else "",
            "versions": "" if none else versions[:MAX_CHARACTERS],
            "index": index[1] if index else "",
        }
        known = {name: value for name, value in values.items() if value}
        end = place + len(found[0][:300])
        yield event(text, "no-matching-distribution", place, end, known)
        yield from pin_claims(requirement, text.source(place), SURE)


def refused_requirements(text: Text) -> Iterator[tuple[str, int, re.Match[str]]]:
    """Each requirement once, its place, and its message: if there are several, one with versions."""
    seen: set[str] = set()
    for needle in ("satisfies the requirement torch", "no matching distribution found for torch"):
        for start, window in text.near(needle):
            messages = REQUIREMENT.finditer(window)
            for found in sorted(messages, key=lambda message: message["versions"] is None):
                requirement = (found["requirement"] or found["only"]).rstrip(".,'\"")
                if requirement not in seen:
                    seen.add(requirement)
                    yield requirement, start + found.start(), found


def pin_claims(words: str, source: str, trust: int) -> Iterator[Claim]:
    if found := PIN.search(words) or COMPANION_PIN.search(words):
        yield from claims_of_pin(found, source, trust)


def claims_of_pin(found: re.Match[str], source: str, trust: int) -> Iterator[Claim]:
    """`torch==2.5.1+cu124` is a pin and a backend; `torch=2.5` of conda is a release."""
    groups = found.groupdict()
    version, op = groups["version"], groups.get("op") or "=="
    if op == "=" or (op == "==" and version.count(".") < 2 and "*" not in version):
        op, version = "==", f"{version.removesuffix('.*')}.*"
    companion = groups.get("companion") or ""
    subject = "wanted.companion" if companion else "wanted.torch"
    yield Claim(subject, f"{companion}{op}{version}", source, trust)
    if label := groups.get("label"):
        yield Claim("wanted.backend", label, source, trust)
