"""The comparison table: what stays, what is left out, and what a Ctrl-C leaves.

No child is started: each request is answered by a device on paper.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpusetup import cli
from gpusetup.model.units import GIB
from gpusetup.tune import bench

Same = Callable[[str, Path], None]
SCREENS = Path(__file__).resolve().parents[1] / "rendered" / "tune"
CONFIG = b"""batch_size: 32   # one GPU
accumulation_steps: 4
use_mixed_precision: false
compile_model: false
"""
TUNED = (
    CONFIG.replace(b"batch_size: 32", b"batch_size: 128")
    .replace(b"steps: 4", b"steps: 1")
    .replace(b"precision: false", b"precision: true")
)


class Paper:
    """A GPU and a model that gains by mixed precision, and loses by compiling."""

    name, limit = "NVIDIA L4", 24 * GIB
    half: str | None = "bf16"
    losses: tuple[float, float | None] = (1.5, 1.6)
    spread: float | None = 2.0
    busy: float | None = None

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def speed(self, job: dict[str, Any]) -> Any:
        rate = 100.0 * (1.6 if job["amp"] else 1.0) * (0.9 if job["compile"] else 1.0)
        return rate * (float(job["batch"]) / 32) ** 0.5

    def answer(self, mode: str, job: dict[str, Any]) -> dict[str, Any]:
        if mode == "devices":
            kind = "cuda" if self.half else "cpu"
            return {"status": "ok", "device": kind, "name": self.name, "limit_bytes": self.limit,
                    "counts": True, "half": self.half or "bf16"}  # fmt: skip
        self.asked.append(job)
        if job["batch"] > 128:
            return {"status": "error", "detail": "OutOfMemoryError: "}
        peak = GIB + job["batch"] * (20 << 20) // (2 if job["amp"] else 1)
        return {"status": "ok", "peak_bytes": peak, "samples_per_second": self.speed(job),
                "spread_percent": self.spread,
                "utilization_percent": self.busy,
                "loss": self.losses[bool(job["amp"])]}  # fmt: skip


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def asked(
        paper: Paper, *words: str, config: bytes = CONFIG, what: str = "--benchmark"
    ) -> tuple[int, str]:
        def ask(self: Any, mode: str, batch: int = 1, **changes: Any) -> dict[str, Any]:
            job = {name: getattr(self.job, name) for name in ("amp", "compile")}
            job |= {name: changes[name] for name in ("amp", "compile") if name in changes}
            return paper.answer(mode, {**job, "batch": batch})

        monkeypatch.setattr(bench.Bench, "ask", ask)
        (tmp_path / "c.yaml").write_bytes(config)
        code = cli.main(["tune", *(["c.yaml"] if config else []), what, "--code", "a:b", *words])
        return code, capsys.readouterr().out

    monkeypatch.chdir(tmp_path)
    return asked


def screen(out: str) -> str:
    """The section of the table."""
    return out[out.index("Measured on") :].partition("\n\n")[0] + "\n"


def table(out: str) -> list[tuple[str, bool]]:
    return [(row["name"], row["kept"]) for row in json.loads(out)["benchmark"]]


def test_what_gained_is_written_and_the_rest_is_left(run: Run, tmp_path: Path) -> None:
    paper = Paper()
    code, out = run(paper, "-o", "out.yaml", "--json")
    assert code == 0 and table(out) == [
        ("base", False), ("+AMP", True), ("+batch", True), ("+workers", False),
        ("+compile", False),
    ]  # fmt: skip
    assert (tmp_path / "out.yaml").read_bytes() == TUNED
    said = json.loads(out)
    assert said["batch_size"] == 128
    assert said["benchmark"][2]["speed_up"] == pytest.approx(3.2)
    assert paper.asked[0]["batch"] == 32


def test_a_step_that_fails_or_does_not_apply_is_shown_and_left_out(
    run: Run, same_as_file: Same
) -> None:
    class Compiler(Paper):
        def answer(self, mode: str, job: dict[str, Any]) -> dict[str, Any]:
            if job["compile"]:
                return {"status": "error", "detail": "no C++ compiler\nmore"}
            return super().answer(mode, {**job, "batch": 32 if mode == "steps" else 1})

        def speed(self, job: dict[str, Any]) -> float:
            return 100.0

    same_as_file(screen(run(Compiler())[1]), SCREENS / "benchmark-none.screen.txt")


def test_a_broken_loss_leaves_mixed_precision_out(run: Run) -> None:
    paper = Paper()
    paper.losses = (1.5, None)
    assert "the loss becomes NaN in bf16: left out" in " ".join(run(paper)[1].split())


def test_a_ctrl_c_answers_with_the_best_so_far_and_exit_130(run: Run) -> None:
    class Interrupted(Paper):
        def answer(self, asked: str, job: dict[str, Any]) -> dict[str, Any]:
            if job["compile"] and asked == "steps":
                raise KeyboardInterrupt
            return super().answer(asked, job)

    code, out = run(Interrupted(), "-o", "out.yaml")
    assert code == 130 and "interrupted: this is the best so far" in out
    assert Path("out.yaml").read_bytes() == TUNED
