"""The presets of the guides as files to start from: dated rows, written as YAML. Pure.

They are starting points: what fits a card and a config is `tune`'s and `plan`'s answer.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.model.frozen import Frozen

AS_OF = "2026-11-24"
G3 = "acceleration guide"
G4 = "optimisation guide"

SECTIONS = (
    ("model", "type hidden_size num_layers dropout base_channels num_blocks patch_size"),
    ("data", "num_workers pin_memory persistent_workers prefetch_factor"),
    ("training", "batch_size accumulation_steps epochs use_mixed_precision use_perceptual "
                 "compile_model grad_clip"),
)  # fmt: skip
"""Map -> its keys, in the order of the file."""

PARAMETERS = {
    "type": ("lstm", "transformer"), "hidden_size": ("128", "128 to 256"),
    "num_layers": ("2", "2 to 4"), "dropout": ("0.2", "0.1 to 0.3"),
    "num_workers": ("4", "2 to 8"), "pin_memory": ("true", "true"),
    "batch_size": ("128", "256 to 1024"), "accumulation_steps": ("1", "1 to 4"),
    "use_mixed_precision": ("false", "true"),
}  # fmt: skip
"""The acceleration guide's table: key -> its default, and what it advises."""

OURS = {
    "type": ("conv", "the guide's keys are those of a conv net"),
    "pin_memory": ("true", "copies from pinned memory run beside the computing"),
    "persistent_workers": ("true", "workers that stay are not started again every epoch"),
    "prefetch_factor": ("2", "torch's default"),
    "accumulation_steps": ("1", "the whole batch at once"),
    "epochs": ("100", "the guide names none"),
    "use_mixed_precision": ("true", "this card has tensor cores"),
    "compile_model": ("false", "`--benchmark` measures whether it gains"),
    "grad_clip": ("1.0", "a usual bound"),
}
"""Where a guide names nothing: our number, and why."""
AS_4070 = {"num_blocks": "8", "patch_size": "192", "num_workers": "8", "use_perceptual": "true"}


class StartFile(Frozen):
    """One file to start from."""

    name: str
    card: str
    guide: str
    """The guide's own numbers: `key=value`, with blanks between."""
    memory_gib: float
    """By `gpusetup plan --code` of the model that `tune --benchmark` builds from the file."""
    expects: str = ""
    """The memory that the acceleration guide expects."""
    ours: tuple[tuple[str, tuple[str, str]], ...] = ()
    """Our own numbers of this preset alone, each with its reason."""
    more: str = ""


STARTS: tuple[StartFile, ...] = (
    StartFile(name="top", card="12 GB or more", memory_gib=1.2, expects="6 to 8 GB",
              guide="type=transformer hidden_size=256 batch_size=512 epochs=100 num_workers=4 "
                    "use_mixed_precision=true pin_memory=true"),
    StartFile(name="balanced", card="8 to 12 GB", memory_gib=0.5, expects="4 to 6 GB",
              guide="type=lstm hidden_size=128 batch_size=256 epochs=50 num_workers=2 "
                    "use_mixed_precision=true"),
    StartFile(name="saving", card="8 GB or less", memory_gib=0.5, expects="2 to 4 GB",
              guide="type=lstm hidden_size=64 batch_size=128 epochs=50 accumulation_steps=2 "
                    "use_mixed_precision=true"),
    StartFile(name="rtx-4090", card="RTX 4090, 24 GB", memory_gib=31.5,
              more=" That does not fit on this card: `--batch-size` finds what does.",
              guide="batch_size=64 base_channels=128 num_blocks=12 patch_size=256 num_workers=12 "
                    "use_mixed_precision=true use_perceptual=true pin_memory=true "
                    "persistent_workers=true compile_model=true"),
    StartFile(name="rtx-4080", card="RTX 4080, 16 GB", memory_gib=7.5,
              guide="batch_size=48 base_channels=96",
              ours=tuple((key, (value, "the guide names none; as its RTX 4070 has it"))
                         for key, value in AS_4070.items())),
    StartFile(name="rtx-4070", card="RTX 4070, 12 GB", memory_gib=5.2,
              guide="batch_size=32 base_channels=96 num_blocks=8 patch_size=192 num_workers=8 "
                    "use_mixed_precision=true use_perceptual=true pin_memory=true"),
    StartFile(name="gtx-1080", card="GTX 1080, 8 GB", memory_gib=1.6,
              guide="batch_size=16 base_channels=64 num_blocks=6 patch_size=128 num_workers=6 "
                    "use_perceptual=false pin_memory=true",
              ours=(("use_mixed_precision",
                     ("false", "the guide has true; this card has no tensor cores")),)),
)  # fmt: skip
NAMES = tuple(one.name for one in STARTS)


def start_file(name: str) -> str:
    """The YAML of a preset; each line says whose number it is, also once it was changed.

    >>> "batch_size: 48  # optimisation guide: 48\\n" in start_file("rtx-4080")
    True
    """
    one = next(row for row in STARTS if row.name == name)
    expects = f"the guide expects {one.expects}; " if one.expects else ""
    return (
        f"# Preset {one.name}, for {one.card} ({G3 if one.expects else G4}; {AS_OF}).\n"
        "# A starting point that was not measured on your card: `gpusetup tune THIS` adapts it to\n"
        "# this machine, `gpusetup tune THIS --benchmark` measures.\n"
        f"# Memory: {expects}`gpusetup plan --code` says {one.memory_gib} GiB for the model that\n"
        f"# `--benchmark` builds from it; yours differs.{one.more}\n" + "".join(_lines(one))
    )


def _lines(one: StartFile) -> Iterator[str]:
    said, ours = dict(word.split("=") for word in one.guide.split()), OURS | dict(one.ours)
    table = PARAMETERS if one.expects else {}
    for section, names in SECTIONS:
        yield f"{section}:\n"
        for key in names.split():
            value, why = ours.get(key, ("", ""))
            whose = f"ours: {value}; {why}"
            if key in table:
                value, advised = table[key]
                by = f"{G3}: {said[key]}; its table:" if key in said else f"{G3}'s table:"
                whose = f"{by} default {value}, advised {advised}"
            elif key in said:
                whose = f"{G3 if table else G4}: {said[key]}"
            if value or key in said:
                yield f"  {key}: {said.get(key, value)}  # {whose}\n"
