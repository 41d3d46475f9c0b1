"""`gpusetup tune`: its screens, its document, its files, and what it refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from each_row import each

from gpusetup.cli import main
from gpusetup.commands.documents import schema_of

HERE = Path(__file__).resolve().parents[1]
SCREENS = HERE / "rendered" / "tune"
Same = Callable[[str, Path], None]
GUIDE = (HERE / "configs" / "guide4.yaml").read_bytes()


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "train.yaml"
    file.write_bytes(GUIDE)
    return file


def ran(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["tune", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_screen_shows_each_change_and_why(
    config: Path, capsys: pytest.CaptureFixture[str], same_as_file: Same
) -> None:
    code, out, _ = ran(capsys, "train.yaml", "--from", "rtx3050-laptop")
    assert code == 0
    same_as_file(out, SCREENS / "laptop.screen.txt")
    assert config.read_bytes() == GUIDE


def test_the_document_is_the_schema_and_nothing_is_written(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = ran(capsys, "train.yaml", "--from", "healthy", "--json")
    answer = json.loads(out)
    jsonschema.validate(answer, schema_of("tune"))
    assert (code, next(iter(answer)), answer["written"]) == (0, "schema", None)
    change = next(one for one in answer["changes"] if one["key"] == "data.num_workers")
    assert (change["from"], change["to"], change["line"]) == (0, 16, 7)
    assert all(one["reason"] and one["source"] for one in answer["changes"])
    assert config.read_bytes() == GUIDE


def test_in_place_writes_and_keeps_the_previous_file(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.chmod(0o640)
    code, out, _ = ran(capsys, "train.yaml", "--from", "rtx3050-laptop", "--in-place")
    assert code == 0
    assert (
        out.splitlines()[-1]
        == "Written to train.yaml; the previous file is train.yaml.gpusetup-previous"
    )
    assert b"num_workers: 5" in config.read_bytes()
    assert config.stat().st_mode & 0o777 == 0o640
    code, out, _ = ran(capsys, "train.yaml", "--from", "rtx3050-laptop", "--in-place", "--json")
    assert json.loads(out)["changes"] == []
    kept = Path("train.yaml.gpusetup-previous")
    assert (kept.read_bytes(), kept.stat().st_mode & 0o777) == (GUIDE, 0o640)
    ran(capsys, "train.yaml", "--from", "healthy", "-o", "./train.yaml")  # an OUT that is CONFIG
    assert kept.read_bytes() != GUIDE
    assert len(list(config.parent.iterdir())) == 2


REFUSED = (
    ("x.yaml", b"a: 1\n\tb: 2\n", "x.yaml, line 2, column 1: found character"),
    ("x.yaml", b"batch_size: 1\nbatch_size: 2\n", "appears twice"),
    ("x.yaml", b"project: mine\nseed: 1\n", "gpusetup knows none of the settings in x.yaml"),
    ("x.json", b"{", "x.json, line 1, column 2: expected"),
    ("x.py", b"a = 1\n", "only in YAML or JSON"),
    ("x.sh", b"a --bf16\n", "only in YAML or JSON"),
    ("x.yaml", b"[" * 600, "nested too deeply"),
)


@pytest.mark.parametrize(("name", "raw", "said"), REFUSED)
def test_bad_configs_are_refused_and_stay_as_they_are(
    config: Path, capsys: pytest.CaptureFixture[str], name: str, raw: bytes, said: str
) -> None:
    file = config.parent / name
    file.write_bytes(raw)
    code, out, err = ran(capsys, name, "--from", "healthy", "--in-place")
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err
    assert file.read_bytes() == raw


WRONG = (
    ((), "the path of a CONFIG"),
    (("train.yaml", "--code", "a:b"), "add `--batch-size` or `--benchmark`"),
    (("--batch-size",), "add `--code MODULE:FUNCTION`"),
    (("--batch-size", "--code", "a:b", "--from", "healthy"), "only measure this"),
    (("--batch-size", "--code", "a:b", "--max", "0"), "`--max` must be at least 1"),
    (("nowhere.yaml", "--from", "healthy"), "nowhere.yaml: No such file"),
)


@pytest.mark.parametrize(("words", "said"), WRONG, ids=[" ".join(row[0]) for row in WRONG])
def test_wrong_questions_are_exit_2(
    config: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    code, _, err = ran(capsys, *words)
    assert (code, said in err) == (2, True), err


LOADERS = {
    "scaling_config: {num_workers: 2, use_gpu: true}\ndataset: {num_workers: 2}\n": True,
    "reward_model:\n  num_workers: 2\n  micro_batch_size: 4\n": False,
    "batch_size: 8\nnum_workers: 2\nlr: 0.1\n": True,
    "num_gpus_per_worker: 1\ndata_config:\n  num_workers: 2\n": True,
}
"""Config -> whether workers of a loader stand in it; the others belong to Ray and the like."""


@each("text, loads", LOADERS.items())
def test_workers_of_a_loader_get_the_number_that_the_reason_gives(
    text: str, loads: bool, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue("config").write_text(text)
    _, out, _ = ran(request.getfixturevalue("capsys"), "train.yaml", "--from", "healthy", "--json")
    answer = json.loads(out)
    changes = [one for one in answer["changes"] if "workers" in one["key"]]
    assert bool(changes) is loads
    for change in changes:
        assert change["to"] == 16 and "16" in change["source"]
        assert re.search(r"\b16 (usable cores|workers)", change["reason"])


def test_a_model_that_cannot_fit_is_said_before_anything_else(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "base_model: Qwen/Qwen3-8B\nsequence_len: 2048\nmicro_batch_size: 2\nnum_workers: 0\n"
    config.write_text(text)
    code, out, _ = ran(capsys, "train.yaml", "--from", "rtx3050-laptop")
    assert code == 1
    assert out.lstrip().startswith("✗ With these settings, the model does not fit on this card")
    assert not {"-num_workers: 0", "+num_workers: 5"} & set(out.split("\n"))
    assert "workers" not in out and "nothing to change" not in out
    assert "its weights alone take 15.3 of 3.8 GiB" in out.replace("\n", " ")
    assert "`gpusetup plan --from-config train.yaml --gpu" in out.replace("\n", " ")
    config.write_text("model: vit_base_patch16_224\nbatch_size: 512\npin_mem: no\nbf16: auto\n")
    code, out, _ = ran(capsys, "train.yaml", "--from", "no-gpu", "--gpu", "RTX 3090")
    assert code == 1 and out.startswith("✗ batch_size 512 does not fit on this card: by ")
    assert "may be enough: checkpointing" in out and "bf16" not in out and "stays" not in out


def test_a_named_card_takes_the_place_of_the_machines(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("train.yaml", "--from", "no-gpu", "--json", "--gpu")
    code, out, _ = ran(capsys, *words, "2x RTX 4090")
    answer = json.loads(out)
    assert code == 0 and "4090" in answer["device"]
    assert any("2 GPUs: start one process each" in word for word in answer["recommendations"])
    assert "training.use_mixed_precision" in {one["key"] for one in answer["changes"]}
    config.write_text("base_model: Qwen/Qwen3-8B\nsequence_len: 2048\nmicro_batch_size: 2\n")
    assert ran(capsys, *words, "RTX 4070")[0] == 1
