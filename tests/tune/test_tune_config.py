"""Configs are changed in place: not one byte differs outside the values that were meant."""

from __future__ import annotations

import difflib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from machines_named import machine_named

from gpusetup.configs.config import Config, added_line, edited, read_config
from gpusetup.tune.case import Facts, Measured, Proposal, facts_of
from gpusetup.tune.rules import propose

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
LAPTOP = facts_of(machine_named("rtx3050-laptop"))
BIG = Facts(
    gpu="A100", gpus=1, memory_bytes=80 << 30, capability=(8, 0), cores=12, ram_bytes=200 << 30,
    family="linux",
)  # fmt: skip
SMALL = Facts(
    gpu="T4", gpus=1, memory_bytes=4 << 30, capability=(7, 5), cores=6, ram_bytes=32 << 30,
    family="linux",
)  # fmt: skip


def tuned(
    raw: bytes, name: str, facts: Facts, option: Measured | None = None
) -> tuple[bytes, Proposal]:
    config = read_config(raw, name)
    proposal = propose(config, facts, option or Measured())
    return edited(config, proposal.edits).raw, proposal


def outside(config: Config, proposal: Proposal) -> tuple[str, list[str]]:
    """The old text without the changed values, and the new values in order."""
    text, values = config.text, []
    for edit in reversed(proposal.edits):
        text = text[: edit.start] + text[edit.end :]
    values = [edit.text for edit in proposal.edits]
    return text, values


def without(text: str, proposal: Proposal) -> str:
    """The new text with what was written taken out again, from its own places."""
    shift, rest = 0, text
    for edit in proposal.edits:
        at = edit.start + shift
        assert rest[at : at + len(edit.text)] == edit.text
        rest = rest[:at] + rest[at + len(edit.text) :]
        shift -= edit.end - edit.start
    return rest


# --- generated ----------------------------------------------------------------------------------

KEYS = {
    "batch_size": ("64", "256", "100"), "accumulation_steps": ("1", "2", "4"),
    "num_workers": ("0", "2", "128"), "pin_memory": ("false", "False", "no", "true"),
    "persistent_workers": ("false", "off"), "prefetch_factor": ("1", "null", "~", "4"),
    "use_mixed_precision": ("false", "No"), "compile_model": ("False", "true"),
    "learning_rate": ("1e-4", "0.001"), "grad_clip": ("1.0",), "base_channels": ("64",),
    "patch_size": ("48",), "seed": ("0x1F", "010", "1_000"), "name": ("'it''s'", '"a # b"'),
    "schedule": ("[1, 2, 3]", "{a: 1, b: [x, y]}"), "path": ("~/data", "C:\\x", "a: b".join("''")),
}  # fmt: skip
COMMENTS = ("", "  # keep me", "   #", "      # ünïcödé → 漢字")
LINES = ("", "# a line of its own", "   ", "#---", "# batch_size: 12")


def generated(seed: int) -> bytes:
    """A config of some shape: nested, commented, with anchors, flows, other newlines."""
    draw = random.Random(seed)
    newline = draw.choice(("\n", "\n", "\r\n"))
    text = newline.join(document(draw)) + draw.choice((newline, ""))
    head = draw.choice(("", "", "---" + newline, "%YAML 1.2" + newline + "---" + newline))
    return (draw.choice((b"", b"\xef\xbb\xbf")) if not head else b"") + (head + text).encode()


def document(draw: random.Random) -> Iterator[str]:
    step = " " * draw.choice((1, 2, 4))
    for section in draw.sample(["train", "data", "optim", "model", "val"], draw.randint(1, 4)):
        yield f"{section}:{draw.choice(COMMENTS[:2])}"
        for name in draw.sample(sorted(KEYS), draw.randint(1, 8)):
            if draw.random() < 0.15:
                yield draw.choice(LINES)
            gap = " " * draw.choice((1, 1, 3))
            value = draw.choice(KEYS[name])
            yield f"{step}{name}:{gap}{value}{draw.choice(COMMENTS)}"
        if draw.random() < 0.2:
            yield f"{step}notes: |"
            yield f"{step}{step}batch_size: 3"
    if draw.random() < 0.3:
        yield "base: &base"
        yield f"{step}num_workers: 0"
        yield "derived:"
        yield f"{step}<<: *base"
        yield f"{step}batch_size: 64"
    if draw.random() < 0.3:
        yield "loader: {batch_size: 64, num_workers: 0, list: [1, 2]}"


@pytest.mark.parametrize("facts", [LAPTOP, BIG, SMALL], ids=["laptop", "big", "small"])
@pytest.mark.one_in(3)
def test_generated_configs_keep_every_byte_outside_the_values(facts: Facts) -> None:
    seeds = range(10)
    edited = 0
    for seed in seeds:
        raw = generated(seed)
        config = read_config(raw, "c.yaml")
        new, proposal = tuned(raw, "c.yaml", facts)
        edited += bool(proposal.changes)
        assert (
            without(new.decode().removeprefix("\ufeff"), proposal) == outside(config, proposal)[0]
        )
        assert new.startswith(b"\xef\xbb\xbf") == raw.startswith(b"\xef\xbb\xbf")
        again, second = tuned(new, "c.yaml", facts)
        assert (again, second.changes) == (new, ()), seed
    assert edited > len(seeds) / 2


# --- the effective batch ------------------------------------------------------------------------


def test_without_a_key_for_accumulation_a_smaller_batch_is_only_advised() -> None:
    raw = b"batch_size: 64\nseq_len: 99\n"
    new, proposal = tuned(raw, "c.yaml", LAPTOP, Measured(batch_size=16))
    assert new == raw
    assert any("a smaller batch alone is another experiment" in word for word in proposal.words)


def test_a_larger_effective_batch_is_another_experiment() -> None:
    raw = b"base_channels: 64\nbatch_size: 16\nlr: 1e-4\n"
    same, proposal = tuned(raw, "c.yaml", BIG, Measured(batch_size=64))
    assert same == raw
    assert any("a batch 4 times as large is another experiment" in one for one in proposal.words)


# --- what the machine allows ----------------------------------------------------------------------


def test_precision_follows_the_gpu() -> None:
    rows = (((8, 0), "bf16-mixed"), ((7, 5), "16-mixed"), ((6, 1), "32"))
    for capability, value in rows:
        facts = Facts(gpus=1, capability=capability, family="linux")
        new, _ = tuned(b"trainer:\n  precision: 32\n", "c.yaml", facts)
        assert new == f"trainer:\n  precision: {value}\n".encode()


# --- what cannot be read, and what is left ------------------------------------------------------

LEFT = (
    (
        b'batch_size: "32"\n',
        'batch_size (line 1) is "32", not a plain number, so it stays as it is',
    ),
    (b"batch_size: auto\n", "batch_size (line 1) is auto, not a plain number"),
    (b"batch_size: -4\n", "batch_size (line 1) is -4, not a plain number"),
    (b"batch_size: [64, 32]\n", "batch_size (line 1) is a list, not a plain number"),
    (b"batch_size: 1e3\n", "batch_size (line 1) is 1e3, not a plain number"),
    (b"batch_size: !foo 64\n", "batch_size (line 1) is !foo 64, not a plain number"),
    (b"a: &x 64\nbatch_size: *x\n", "batch_size (line 2) is shared through an anchor"),
)


@pytest.mark.parametrize(("raw", "said"), LEFT, ids=[raw.decode() for raw, _ in LEFT])
def test_a_value_that_is_no_plain_number_is_left_and_named(raw: bytes, said: str) -> None:
    new, proposal = tuned(raw, "c.yaml", LAPTOP)
    assert new == raw
    assert any(word.startswith(said) for word in proposal.words), proposal.words


def test_a_new_key_is_a_line_of_its_own_with_the_indent_of_its_neighbour() -> None:
    rows = (
        (b"a:\r\n batch_size: 8 #\r\n z: 1\r\n", b"a:\r\n batch_size: 8 #\r\n new: 1\r\n z: 1\r\n"),
        (b"- batch_size: 8", b"- batch_size: 8\n  new: 1"),
        (b"{batch_size: 8}\n", None),
        (b"batch_size: 8\n...\n", b"batch_size: 8\nnew: 1\n...\n"),
    )  # fmt: skip
    for raw, expected in rows:
        config = read_config(raw, "c.yaml")
        beside = next(one for one in config.settings if one.path[-1:] == ("batch_size",))
        edit = added_line(config, beside, "new", "1")
        assert (edited(config, [edit]).raw if edit else None) == expected


# --- real trainers ------------------------------------------------------------------------------

KNOWN = sorted(path.name for path in CONFIGS.iterdir() if path.suffix != ".diff")


@pytest.mark.parametrize("name", KNOWN)
def test_configs_of_known_trainers_change_only_where_meant(
    name: str, request: pytest.FixtureRequest
) -> None:
    raw = (CONFIGS / name).read_bytes()
    new, proposal = tuned(raw, name, LAPTOP)
    assert without(new.decode(), proposal) == outside(read_config(raw, name), proposal)[0]
    assert tuned(new, name, LAPTOP)[0] == new
    lines = difflib.unified_diff(
        raw.decode().splitlines(), new.decode().splitlines(), lineterm="", n=0
    )
    text = "\n".join([*lines, *(f"· {word}" for word in proposal.words)]) + "\n"
    same = request.getfixturevalue("same_as_file")
    same(text, CONFIGS.parent / "rendered" / "tune" / f"{name}.txt")
