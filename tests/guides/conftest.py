"""What the guides' tests share: asking a command, a text that doctor reads, a config to tune."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tuned_configs import Tuner

from gpusetup.cli import main
from gpusetup.model.units import GIB
from gpusetup.tune import bench


class Read(NamedTuple):
    """Doctor's answer to a pasted text."""

    cause: str
    screen: str
    """All words of it, with single blanks between them."""
    code: int
    answer: dict[str, Any]


@pytest.fixture
def reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[str], Read]:
    """`doctor --report` of a text."""

    def read(text: str) -> Read:
        file = tmp_path / "report.txt"
        file.write_text(text, encoding="utf-8")
        main(["doctor", "--report", str(file), "--json"])
        answer = json.loads(capsys.readouterr().out)
        code = main(["doctor", "--report", str(file)])
        return Read(answer["cause"], " ".join(capsys.readouterr().out.split()), code, answer)

    return read


@pytest.fixture
def tuner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Tuner:
    return Tuner(tmp_path, capsys)


class Said(NamedTuple):
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """All that it printed, with single blanks between the words."""
        return " ".join((self.out + " " + self.err).split())

    @property
    def document(self) -> dict[str, Any]:
        """The JSON that it printed, if it did what it was asked for."""
        assert self.code == 0, self.err
        return dict(json.loads(self.out))


@pytest.fixture
def says(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """`gpusetup WORDS`, in this process."""

    def ask(*words: str) -> Said:
        return Said(main(words), *capsys.readouterr())

    return ask


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Trials on a GPU of 24 GiB are answered by a function of the setting: its samples a second.

    `dataset` is the length of the data set, if the code has one; a batch above `most` runs out of
    memory.
    """

    def played(
        speed: Callable[[dict[str, Any]], float] = lambda _: 100.0,
        dataset: int | None = None,
        most: int = 1 << 20,
    ) -> None:
        def ask(self: Any, mode: str, batch: int = 1, **changes: Any) -> dict[str, Any]:
            if mode == "devices":
                return {"status": "ok", "device": "cuda", "name": "NVIDIA L4", "counts": True,
                        "limit_bytes": 24 * GIB, "half": "bf16"}  # fmt: skip
            if batch > most:
                return {"status": "error", "detail": "OutOfMemoryError: CUDA out of memory"}
            setting = {"amp": self.job.amp, "compile": False, "workers": None, **changes}
            loaded = {"workers": setting["workers"] or 0, "dataset_length": dataset}
            losses = [2.3 - step / 100 + (0.001 if setting["amp"] else 0) for step in range(12)]
            return {
                "status": "ok",
                "peak_bytes": GIB + batch * 22 * GIB // most,
                "samples_per_second": speed({**setting, "batch": batch}),
                "spread_percent": 2.0,
                "loss": losses[-1],
                "losses": losses,
                **(loaded if dataset and changes.get("loaded") else {}),
            }

        monkeypatch.setattr(bench.Bench, "ask", ask)

    return played
