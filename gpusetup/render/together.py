"""A set that goes together, as a screen and as files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from gpusetup.install.joint.table import Joint
from gpusetup.installers.options import FAMILY
from gpusetup.model.documents import ResolveAnswer
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import Cell, JointPackage, Resolution
from gpusetup.model.shell import shell_line
from gpusetup.render import formats
from gpusetup.render.language import (
    COMMAND,
    DIM,
    HINT,
    NO,
    OK,
    Row,
    Screen,
    heading,
    remark,
    row,
    verdict,
)
from gpusetup.render.language import command as command_line
from gpusetup.render.program import as_typed
from gpusetup.render.resolution import LABEL

Writer = Callable[[Joint, Resolution, Snapshot, str], str]
WIDEST = 60


def pinned_words(joint: Joint) -> tuple[str, ...]:
    """What was asked for, at its exact version, as an installer takes it."""
    asked = (one for one in joint.packages if one.asked and one.name not in FAMILY)
    return tuple(map(requirement, asked))


def requirement(one: JointPackage) -> str:
    """`vllm==0.32.0`, `jax[cuda13]==0.12.0`, or the file where no index decides."""
    name = f"{one.name}[{','.join(one.extras)}]" if one.extras else one.name
    if one.file:
        return f"{name} @ {one.file}"
    return f"{name}=={one.version}" if one.version else f"{name}{one.limits or ''}"


def together_text(
    answer: ResolveAnswer, joint: Joint, snapshot: Snapshot, installer: str
) -> Screen:
    """The whole screen."""
    return Screen(_lines(answer, joint, snapshot, installer))


def _lines(
    answer: ResolveAnswer, joint: Joint, snapshot: Snapshot, installer: str
) -> Iterable[str]:
    if joint.refused:
        yield verdict(NO, "no", ": only an old release goes together here:")
    else:
        yield verdict(OK, "These go together")
    head = [one for one in joint.packages if one.asked or one.name in FAMILY]
    for one in head:
        yield _member(one)
    rest = len(joint.packages) - len(head)
    if rest:
        yield f"  and {rest} more that they require (`--json`, `--format requirements`)"
    for served in answer.served:
        yield f"  serves {served.gpu} ({served.compute_capability}) by {served.by}"
    if joint.held_back:
        yield ""
        yield heading("Not newer, because")
        for held in joint.held_back:
            yield Row(f"  {held.package} stays at {held.at}: {held.by}", hang=4)
    if joint.matrix:
        yield ""
        yield from matrix_lines(joint.matrix)
    steps = answer.commands.get(installer, ())
    if steps:
        yield ""
        yield heading(f"With {installer}")
        yield from (command_line(shell_line(argv, snapshot.os.family)) for argv in steps)
    if joint.refused:
        at = {one.package: one.at for one in joint.refused}
        asked = [one.name for one in joint.packages if one.asked]
        names = " ".join(f"'{n}=={at[n]}'" if n in at else n for n in asked)
        yield ""
        asked_again = f"gpusetup resolve {names}"
        yield Row(
            ("hint", HINT), ": asked for by its version it is taken: ", (asked_again, COMMAND)
        )
    yield from (remark("note", note) for note in answer.notes)


def _member(one: JointPackage) -> Row:
    head = f"  {one.name:{LABEL}} {one.version or one.limits or 'any that fits':16} "
    where = _where(one)
    return Row(head, (where, DIM), hang=len(head)) if where else Row(head.rstrip())


def _where(one: JointPackage) -> str:
    told = "" if one.declared else "  (by the table of companions)"
    return f"{one.file or one.index_url or ''}{told}"


def matrix_lines(matrix: Iterable[Cell]) -> Iterable[str]:
    """Packages down, torch across; the reason of each empty cell below."""
    cells = {(cell.package, cell.torch): cell for cell in matrix}
    packages = dict.fromkeys(package for package, _ in cells)
    torches = dict.fromkeys(torch for _, torch in cells)
    yield row((f"  {'torch':{LABEL}} " + " ".join(f"{torch:14}" for torch in torches), DIM))
    for package in packages:
        found = (cells[package, torch].version or "-" for torch in torches)
        yield row(f"  {package:{LABEL}} " + " ".join(f"{text:14}" for text in found))
    for cell in cells.values():
        if cell.version is None:
            yield Row(f"  - {cell.package} with torch {cell.torch}: {cell.reason}", hang=4)


# --- files ---------------------------------------------------------------------------------------


NO_HASHES = "# No hashes: those of torch's own index are not known here, and pip takes all or none."
PAGES = "# Only torch's family is looked for on these pages: no second index is asked for the rest."


def requirements(joint: Joint, resolution: Resolution, snapshot: Snapshot, _: str) -> str:
    """The whole set, each at its exact version; hashes for all of it or, where one is not known,
    for none: pip takes either.

    A second index would be searched for every package; a page of one package's wheels is not.
    """
    hashed = all(joint.hashes.get(one.name) for one in joint.packages)
    index = (resolution.index_url or "").rstrip("/")
    lines = [
        formats.head(resolution, snapshot),
        *(() if hashed else (NO_HASHES,)),
        PAGES,
        *(f"--find-links {index}/{name}/" for name in family_of(joint)),
    ]
    for one in joint.packages:
        marks = joint.hashes.get(one.name, ()) if hashed else ()
        lines.append(" ".join((requirement(one), *(f"--hash=sha256:{mark}" for mark in marks))))
    return "\n".join(lines) + "\n"


def family_of(joint: Joint) -> tuple[str, ...]:
    """What of torch's family is in the set."""
    there = {one.name for one in joint.packages}
    return tuple(name for name in FAMILY if name in there)


def command(joint: Joint, resolution: Resolution, snapshot: Snapshot, installer: str) -> str:
    from gpusetup.resolver import to_answer

    answer = to_answer(resolution, snapshot, (*family_of(joint), *pinned_words(joint)))
    steps = answer.commands.get(installer, ())
    typed = (as_typed(shell_line(argv, snapshot.os.family)) for argv in steps)
    return "".join(f"{line}\n" for line in typed)


def _with_more(name: str) -> Writer:
    """A file of one torch alone, with the packages that were asked for where its kind has them."""

    def write(joint: Joint, resolution: Resolution, snapshot: Snapshot, installer: str) -> str:
        text = formats.FORMATS[name](resolution, snapshot, installer, family_of(joint))
        return ADDERS[name](text, joint)

    return write


def _into_uv(text: str, joint: Joint) -> str:
    more = "".join(f'    "{word}",\n' for word in _all_words(joint))
    return text.replace("]\n\n[tool.uv]", f"{more}]\n\n[tool.uv]", 1)


def _into_pixi(text: str, joint: Joint) -> str:
    rows = []
    for one in _others(joint):
        value = f'{{ url = "{one.file}" }}' if one.file else _pixi_version(one)
        rows.append(f"{one.name} = {value}\n")
    return text + "".join(rows)


def _pixi_version(one: JointPackage) -> str:
    version = f"=={one.version}" if one.version else one.limits or "*"
    extras = ", ".join(f'"{extra}"' for extra in one.extras)
    return f'{{ version = "{version}", extras = [{extras}] }}' if extras else f'"{version}"'


def _into_conda(text: str, joint: Joint) -> str:
    if not _others(joint):
        return text
    return text + "  - pip\n  - pip:\n" + "".join(f"    - {w}\n" for w in _all_words(joint))


def _into_docker(text: str, joint: Joint) -> str:
    import shlex

    if not _others(joint):
        return text
    words = shlex.join(_all_words(joint))
    line = f"RUN python -m pip install --no-cache-dir {words}\n"
    return text.replace('RUN python -c "import torch', f'{line}RUN python -c "import torch', 1)


def _others(joint: Joint) -> tuple[JointPackage, ...]:
    return tuple(one for one in joint.packages if one.name not in FAMILY)


def _all_words(joint: Joint) -> tuple[str, ...]:
    return tuple(map(requirement, _others(joint)))


ADDERS: Mapping[str, Callable[[str, Joint], str]] = {
    "uv": _into_uv,
    "pixi": _into_pixi,
    "conda": _into_conda,
    "dockerfile": _into_docker,
}
FORMATS: Mapping[str, Writer] = {
    "requirements": requirements,
    "command": command,
    **{name: _with_more(name) for name in ADDERS},
}
