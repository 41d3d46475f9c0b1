"""`gpusetup tune --preset`: prints a ready-made config from the guides, or writes it to a file."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gpusetup.commands.reply import Reply
from gpusetup.errors import UsageError
from gpusetup.tune.answer import PresetRow, TuneAnswer
from gpusetup.tune.presets import LIST, PRESETS, preset_named, preset_text

if TYPE_CHECKING:
    from gpusetup.commands.tune import TuneQuestion

DEFAULT_FILE = "train.yaml"
"""The config file name in the commands of a printed preset."""
YAML_ENDINGS = (".yaml", ".yml")


def run_preset(question: TuneQuestion) -> Reply:
    """The reply with the list of presets, with one preset, or with the file to which it was written
    (`-o`)."""
    from gpusetup.render.tune import preset_screen

    _check(question)
    if question.preset is None or question.preset == LIST:
        rows = tuple(
            PresetRow(name=row.name, trains=row.trains, card=row.card, guide=row.guide)
            for row in PRESETS
        )
        return Reply(TuneAnswer(presets=rows), preset_screen)
    preset = preset_named(question.preset)
    text = preset_text(preset, question.target or DEFAULT_FILE)
    previous_file = None
    if question.target:
        from gpusetup.tune.config_file import write_keeping_previous

        previous_file = write_keeping_previous(question.target, text.encode())
    answer = TuneAnswer(preset=text, written=question.target)
    return Reply(answer, partial(preset_screen, kept=previous_file))


def _check(question: TuneQuestion) -> None:
    """Raise UsageError for options that cannot be combined with `--preset`."""
    if question.config:
        raise UsageError(
            f"`--preset` begins a new config and does not read {question.config}",
            hint="name the file to write with `-o FILE`",
        )
    if question.in_place:
        raise UsageError("`--preset` has no config to change in place", hint="use `-o FILE`")
    if question.measures or question.code:
        raise UsageError(
            "`--preset` only writes a config",
            hint="write it with `-o FILE`, then measure FILE: `gpusetup tune FILE --benchmark ...`",
        )
    is_yaml = not question.target or question.target.lower().endswith(YAML_ENDINGS)
    if not is_yaml:
        raise UsageError(
            f"Presets are YAML, but {question.target} does not end in .yaml",
            hint="name a file that ends in .yaml",
        )
