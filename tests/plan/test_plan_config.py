"""`plan --from-config`: what is read of each trainer's config, what is refused, and `clear`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpusetup.cli import main
from gpusetup.configs.config import read_config
from gpusetup.errors import BadInput
from gpusetup.model.units import GIB
from gpusetup.plan.batch_verdict import batch_verdict
from gpusetup.plan.config import FromConfig, question_of
from gpusetup.plan.models import model_named
from gpusetup.plan.place import place_of

HERE = Path(__file__).parents[1]
CONFIGS = {
    file.name: file for room in ("configs", "plan_configs") for file in (HERE / room).iterdir()
}


def asked(text: str, name: str = "train.yaml") -> FromConfig:
    return question_of(read_config(text.encode(), name))


def test_every_key_is_read_assumed_or_named_as_not_understood() -> None:
    found = asked(
        "model_name_or_path: gpt2\nper_device_train_batch_size: 4\nmax_seq_length: 128\n"
        "frobnicate_layers: 3\noutput_dir: x\nplan: {loss: hf}\n"
    ).read
    assert {one.key for one in found.read} == {
        "model_name_or_path", "per_device_train_batch_size", "max_seq_length", "plan.loss",
    }  # fmt: skip
    assert [one.key for one in found.not_understood] == ["frobnicate_layers"]
    assert found.not_understood[0].line == 4


HOSTILE = {
    "model_name_or_path: gpt2\nper_device_train_batch_size: " + "9" * 5000: "line 2",
    "model_name_or_path: gpt2\nper_device_train_batch_size: 999999999999": "line 2",
    "model_name_or_path: gpt2\nmax_seq_length: -4": "line 2",
    "a: " + "{a: " * 90 + "1" + "}" * 90: "nested too deeply",
}


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_config_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        asked(text)
    assert HOSTILE[text] in caught.value.message
    assert len(caught.value.message) < 300


def test_a_config_cannot_make_another_file_be_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text("{}", encoding="utf-8")
    for path in (secret, "/dev/zero", "/dev/stdin"):
        if not Path(path).exists():
            continue
        with pytest.raises(BadInput) as caught:
            asked(f"a: 1\nmodel_name_or_path: {path}\nmax_seq_length: 8\n")
        assert "line 2" in caught.value.message
    big = tmp_path / "config.json"
    big.write_bytes(b" " * (1 << 21))
    with pytest.raises(BadInput):
        model_named(str(big))


def test_what_is_said_comes_before_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(CONFIGS["trl_sft.yaml"])
    more = ["--context", "512", "--batch", "1", "--model", "gpt2"]
    assert main(["plan", "--from-config", file, "--gpu", "RTX 4090", *more, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["model"], found["context"], found["batch"]) == ("gpt2", 512, 1)
    assert main(["plan", "--from-config", file, "--gpu", "RTX 4090", "--max-batch"]) == 0
    assert "largest batch" in capsys.readouterr().out


GUIDE = """model:
  model_path: ${oc.env:TRINITY_MODEL_PATH,Qwen/Qwen3-8B}
  max_model_len: ${oc.env:MAX_MODEL_LEN,40960}
"""
YARN = "  rope_scaling: {rope_type: yarn, factor: 1.0}\n"
DYNAMIC = "trainer: {use_dynamic_bsz: true}\n"


@pytest.mark.parametrize(
    ("text", "variables", "context"),
    [
        (GUIDE + YARN, {"MAX_MODEL_LEN": "81920"}, 81920),
        (GUIDE + YARN, {"MAX_MODEL_LEN": "", "OTHER": "81920"}, 40960),
        (GUIDE + DYNAMIC, {"MAX_MODEL_LEN": "8192"}, 8192),
    ],
)
def test_the_guide_s_config_is_trinity_s_and_reads_the_variables_that_are_set(
    text: str, variables: dict[str, str], context: int, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = guide_answer(text, tmp_path, capsys)
    assert found["config"]["trainer"] == "trinity" and found["context"] == context
    assert ("max_token_len_per_gpu" in found["settings"]) and found["batch"] is None


def guide_answer(
    text: str, folder: Path, capsys: pytest.CaptureFixture[str], *words: str
) -> dict[str, Any]:
    (folder / "guide.yaml").write_text(text, encoding="utf-8")
    card = ("--gpu", "A100 80GB", "--gpus", "8", *words, "--json")
    main(["plan", "--from-config", str(folder / "guide.yaml"), *card])
    return dict(json.loads(capsys.readouterr().out))


CARD = place_of("NVIDIA GeForce RTX 4090", 24 * GIB)


def test_a_batch_is_clear_only_far_from_the_limit() -> None:
    config = read_config(CONFIGS["trl_sft.yaml"].read_bytes(), "trl_sft.yaml")
    verdicts = [batch_verdict(config, size, CARD) for size in (1, 2, 4, 8, 16, 32, 64, 128)]
    words = [one.verdict for one in verdicts]
    assert words[0] == "clear" and words[-1] == "too much"
    assert words == sorted(words, key=["clear", "close", "too much"].index)
    for one in verdicts:
        if one.verdict == "clear":
            assert one.total_gib <= 0.8 * one.capacity_gib


@pytest.mark.parametrize(
    ("targets", "is_said"), [("[q_proj, v_proj]", True), ("all-linear", False)]
)
def test_adapters_on_a_part_of_the_layers_are_said_to_be_counted_on_all(
    targets: str, is_said: bool
) -> None:
    found = asked(f"model_name_or_path: gpt2\nlora_r: 8\nlora_target_modules: {targets}\n").read
    assert any("all linear layers" in said for said in found.assumed) == is_said
