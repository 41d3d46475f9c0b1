"""The screen of `gpusetup guard`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.render.language import plain

if TYPE_CHECKING:
    from gpusetup.install.guard_answer import GuardAnswer, GuardFile


def guard_screen(answer: GuardAnswer, *, write: bool) -> str:
    """What is guarded, the lines that each file gets, and what they hold."""
    lines = [f"Target   {answer.target}", f"Guarded  {_list(answer)}", ""]
    for file in answer.files:
        lines += _rows(file)
    if not answer.files:
        lines += ["Everything that the guard writes is there already.", ""]
    lines += [
        "pip of this environment reads its own configuration. Another pip, for this shell:",
        f"    {answer.settings['pip']}",
        "`uv pip` reads UV_CONSTRAINT, which activating the environment sets, and the settings of",
        "the folder that it runs in. `uv pip install --python` from elsewhere, while the",
        "environment is not active, reads neither; for such a shell, and for a uv project:",
        f"    {answer.settings['uv']}",
        f"    {answer.settings['uv project']}",
        "ComfyUI-Manager puts back what its `pip_auto_fix.list` names, one a line:",
        f"    {answer.settings['ComfyUI-Manager']}",
    ]
    lines += _notes(answer)
    if answer.files and not write:
        lines += ["", "Nothing was changed. To write these files: gpusetup guard --write"]
    return plain("\n".join(lines) + "\n")


def written(answer: GuardAnswer) -> str:
    """The last word of `--write`."""
    head = f"Guarded: {_list(answer)} in {answer.target}"
    return plain("\n".join((head, *_notes(answer))) + "\n")


def _rows(file: GuardFile) -> tuple[str, ...]:
    return (f"{file.path}:", *(f"  + {line}" for line in file.added), "")


def _notes(answer: GuardAnswer) -> list[str]:
    return [f"Note     {note}" for note in answer.notes]


def _list(answer: GuardAnswer) -> str:
    return ", ".join(f"{name} {version}" for name, version in answer.pins.items())
