"""The presets of the guides as files to start from: dated rows, written as YAML. Pure.

They are starting points, unmeasured: what fits a card and a config is `tune`'s and `plan`'s answer.
"""

from __future__ import annotations

from gpusetup.model.frozen import Frozen

AS_OF = "2026-11-21"
OURS = "a starting point of gpusetup; the guide names none"
G3 = "acceleration guide"
G4 = "optimisation guide, presets by card"


class StartFile(Frozen):
    """One file to start from."""

    name: str
    card: str
    kind: str
    """Of the model: lstm, transformer, conv."""
    size: tuple[tuple[str, int], ...]
    """The model's numbers, as the config names them."""
    batch: int
    span: tuple[int, int] | None
    """The guide's range for the batch on one GPU; None: one number."""
    epochs: int
    workers: int
    source: str
    sizes_by: str
    accumulation: int = 1


STARTS: tuple[StartFile, ...] = (
    StartFile(name="top", card="12 GB or more", kind="transformer",
              size=(("hidden_size", 256), ("num_layers", 4)), batch=1024, span=(512, 2048),
              epochs=100, workers=8, source=G3, sizes_by=OURS),
    StartFile(name="balanced", card="8 to 12 GB", kind="lstm",
              size=(("hidden_size", 128), ("num_layers", 2)), batch=512, span=(256, 1024),
              epochs=80, workers=4, source=G3, sizes_by=OURS),
    StartFile(name="saving", card="8 GB or less", kind="lstm",
              size=(("hidden_size", 64), ("num_layers", 2)), batch=128, span=(64, 512),
              epochs=60, workers=2, source=G3, sizes_by=OURS, accumulation=4),
    StartFile(name="rtx-4090", card="RTX 4090, 24 GB", kind="conv",
              size=(("base_channels", 128), ("num_blocks", 8)), batch=64, span=None,
              epochs=100, workers=8, source=G4, sizes_by=f"{G4}; num_blocks: {OURS}"),
    StartFile(name="rtx-4080", card="RTX 4080, 16 GB", kind="conv",
              size=(("base_channels", 96), ("num_blocks", 8)), batch=48, span=None,
              epochs=100, workers=8, source=G4, sizes_by=f"{G4}; num_blocks: {OURS}"),
    StartFile(name="rtx-4070", card="RTX 4070, 12 GB", kind="conv",
              size=(("base_channels", 96), ("num_blocks", 8)), batch=32, span=None,
              epochs=100, workers=8, source=G4, sizes_by=f"{G4}; num_blocks: {OURS}"),
    StartFile(name="gtx-1080", card="GTX 1080, 8 GB", kind="conv",
              size=(("base_channels", 64), ("num_blocks", 8)), batch=16, span=None,
              epochs=100, workers=4, source=G4, sizes_by=f"{G4}; num_blocks: {OURS}"),
)  # fmt: skip
NAMES = tuple(one.name for one in STARTS)


def start_file(name: str) -> str:
    """The YAML of a preset.

    >>> "batch_size: 48" in start_file("rtx-4080")
    True
    """
    one = next(row for row in STARTS if row.name == name)
    span = f", {one.span[0]} to {one.span[1]} by its marks" if one.span else ""
    sizes = "".join(f"  {key}: {value}\n" for key, value in one.size)
    # Before Volta there are no tensor cores: mixed precision gains nothing there.
    amp = "false" if one.name == "gtx-1080" else "true"
    return (
        f"# Preset {one.name}, for {one.card} ({one.source}; {AS_OF}).\n"
        "# A starting point that nobody measured on your card: `gpusetup tune THIS` adapts it to\n"
        "# this machine, `gpusetup tune THIS --benchmark` measures.\n"
        f"model:  # {one.sizes_by}\n"
        f"  type: {one.kind}\n"
        f"{sizes}"
        "data:\n"
        f"  num_workers: {one.workers}  # as many as usable cores, no more\n"
        "  pin_memory: true\n"
        "  persistent_workers: true\n"
        "  prefetch_factor: 2\n"
        "training:\n"
        f"  batch_size: {one.batch}  # on one GPU{span}\n"
        f"  accumulation_steps: {one.accumulation}\n"
        f"  epochs: {one.epochs}  # {OURS}\n"
        f"  use_mixed_precision: {amp}\n"
        "  compile_model: false\n"
        "  grad_clip: 1.0\n"
    )
