"""`gpusetup tune --preset`: one of the guides' configs to start from, printed or written."""

from __future__ import annotations

from argparse import Namespace
from functools import partial

from gpusetup.errors import UsageError
from gpusetup.render.console import Console
from gpusetup.tune.answer import PresetRow, TuneAnswer
from gpusetup.tune.presets import LIST, PRESETS, preset_named, preset_text

DEFAULT_FILE = "train.yaml"
"""The file that the commands in a printed preset name."""
YAML_ENDINGS = (".yaml", ".yml")


def run_preset(options: Namespace, out: Console) -> int:
    """Show the presets, print one, or write it to the file of `-o`."""
    from gpusetup.render.tune import preset_screen

    _check(options)
    if options.preset == LIST:
        rows = tuple(
            PresetRow(name=row.name, trains=row.trains, card=row.card, guide=row.guide)
            for row in PRESETS
        )
        return out.answer(TuneAnswer(presets=rows), preset_screen)
    preset = preset_named(options.preset)
    text = preset_text(preset, options.target or DEFAULT_FILE)
    kept = None
    if options.target:
        from gpusetup.tune.config_file import write_keeping_previous

        kept = write_keeping_previous(options.target, text.encode())
    answer = TuneAnswer(preset=text, written=options.target)
    return out.answer(answer, partial(preset_screen, kept=kept))


def _check(options: Namespace) -> None:
    """`UsageError` for options that a preset does not take."""
    if options.config:
        raise UsageError(
            f"`--preset` begins a new config and does not read {options.config}",
            hint="name the file to write with `-o FILE`",
        )
    if options.in_place:
        raise UsageError("`--preset` has no config to change in place", hint="use `-o FILE`")
    if options.benchmark or options.batch_size or options.code:
        raise UsageError(
            "`--preset` only writes a config",
            hint="write it with `-o FILE`, then measure FILE: `gpusetup tune FILE --benchmark ...`",
        )
    is_yaml = not options.target or options.target.lower().endswith(YAML_ENDINGS)
    if not is_yaml:
        raise UsageError(
            f"Presets are YAML, and {options.target} is not named so",
            hint="name a file that ends in .yaml",
        )
