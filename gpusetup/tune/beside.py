"""The other file that holds a batch and a precision too: an HF config and its DeepSpeed JSON.

Both must agree or the trainer refuses to start, so that neither is changed alone.
"""

from __future__ import annotations

from pathlib import Path

from gpusetup import named_file
from gpusetup.configs.config import Config, read_config
from gpusetup.configs.settings import in_words, unquoted, whole
from gpusetup.errors import GpuSetupError

HELD = frozenset(
    ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
)
DEEPSPEED = ("zero_optimization", "train_micro_batch_size_per_gpu")
ENDS = (".yaml", ".yml", ".json", ".toml", ".py", ".sh", ".md")
MOST_FILES, MOST_BYTES = 200, 1 << 18


def fixed_beside(path: str, config: Config) -> str | None:
    """Why the batch and the precision of a config must stay as they are; None where they may not.

    >>> fixed_beside("train.yaml", Config(name="train.yaml", text="", format="yaml", settings=()))
    """
    if any(one.path and one.path[-1] in DEEPSPEED for one in config.settings):
        return _of_deepspeed(Path(path), config)
    for one in config.settings:
        if one.path == ("deepspeed",) and one.kind == "scalar" and ".json" in one.text:
            return _of_hugging_face(Path(path).parent, unquoted(one.text))
    return None


def _of_hugging_face(folder: Path, named: str) -> str | None:
    """What the DeepSpeed file of an HF config holds itself; the trainer fills in `auto`."""
    file = next((one for one in (folder / named, Path(named)) if named_file.is_there(one)), None)
    if file is None:
        return f"{named} holds a batch too, perhaps, and it is not here: both must agree"
    try:
        found = read_config(file.read_bytes(), file.name)
    except (OSError, GpuSetupError):
        return f"{named} cannot be read: its batch and this one must agree"
    held = [
        one for one in found.settings
        if (one.path and one.path[-1] in HELD and whole(one) is not None)
        or (one.path[-2:] in (("fp16", "enabled"), ("bf16", "enabled")) and "auto" not in one.text)
    ]  # fmt: skip
    if not held:
        return None
    names = ", ".join(f"{in_words(one.path)} (line {one.line})" for one in held[:3])
    return f"{named} says {names} too, and both must agree: write `auto` there, or change both"


def _of_deepspeed(path: Path, config: Config) -> str | None:
    auto = next((one for one in config.settings if unquoted(one.text) == "auto"), None)
    if auto is not None:
        return f"{in_words(auto.path)} (line {auto.line}) is auto: the trainer's own config decides"
    file = _names(path)
    return f"{file} names this file and says a batch too, and both must agree" if file else None


def _names(path: Path) -> str | None:
    """A file in the same folder that names this one and says HF's batch."""
    try:
        files = sorted(one for one in path.resolve().parent.iterdir() if one.suffix in ENDS)
    except OSError:
        return None
    for file in files[:MOST_FILES]:
        try:
            if file.name == path.name or file.stat().st_size > MOST_BYTES:
                continue
            text = file.read_text("utf-8", "replace")
        except OSError:
            continue
        if path.name in text and "per_device_train_batch_size" in text:
            return file.name
    return None
