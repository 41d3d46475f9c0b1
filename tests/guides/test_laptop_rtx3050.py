"""Guide 002, a laptop with an RTX 3050: what its reader does, and what gpusetup must give back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tuned_configs import Tuner

from gpusetup.cli import main
from gpusetup.verify.checks.table import LEVELS, on_device

LAPTOP = ("--from", "rtx3050-laptop")


def conda_lines(said: Any) -> list[str]:
    assert said.code == 0, said.err
    return [line.strip() for line in said.out.partition("With conda\n")[2].splitlines()]


def test_conda_makes_a_new_environment_with_a_name_and_a_python(says: Any) -> None:
    """002-9: create, activate, install and verify, with the name that was asked for."""
    said = says("resolve", *LAPTOP, "--torch", "2.5.1", "--name", "qwen")
    create, activate, install, verify = conda_lines(said)[:4]
    assert create.startswith("conda create --name qwen ") and create.endswith(" python=3.11")
    assert activate == "conda activate qwen"
    assert install.startswith("conda install --yes --name qwen ")
    assert " --channel pytorch --channel nvidia " in install
    assert install.endswith(
        " pytorch::pytorch==2.5.1 pytorch::torchvision==0.20.1 pytorch::torchaudio==2.5.1 "
        "pytorch-cuda=12.4"
    )
    assert verify == "gpusetup verify"


@pytest.mark.parametrize(
    ("machine", "begins"),
    [("rtx3050-laptop", "conda create --name torch "), ("conda-and-pip", "conda install --yes ")],
)
def test_without_a_name_an_active_environment_is_used(machine: str, begins: str, says: Any) -> None:
    """002-9: a machine without an active conda environment gets a new one."""
    lines = conda_lines(says("resolve", "--from", machine, "--installer", "conda"))
    assert lines[0].startswith(begins)


BERT = (
    "model_name_or_path: bert-base-uncased\nper_device_train_batch_size: 32\n"
    "gradient_accumulation_steps: 1\n{length}: 512\n{precision}\n{more}"
)


@pytest.mark.parametrize("length", ["max_length", "max_seq_length"])
@pytest.mark.parametrize("more", ["", "dataset_name: imdb\n", "task_name: mrpc\n"])
def test_bert_on_4_gb_gets_a_batch_of_16_or_less_and_half_precision(
    length: str, more: str, tuner: Tuner
) -> None:
    """002-13: the same for `max_length` and `max_seq_length`."""
    config = BERT.format(length=length, precision="fp16: false", more=more)
    tuned = tuner.tune(config, "rtx3050-laptop")
    batch = tuned.changes["per_device_train_batch_size"][1]
    assert batch <= 16
    assert tuned.changes["gradient_accumulation_steps"][1] == 32 // batch
    assert tuned.changes["bf16"] == (None, True)


def test_a_loop_of_ones_own_gets_the_batch_in_words(tuner: Tuner) -> None:
    """002-13: also if the batch is a `train_batch_size`, or plan does not know the model."""
    for model, batch in (
        ("model_name: distilbert-base-uncased", "train_batch_size"),
        ("model_name_or_path: acme/reviews-base", "per_device_train_batch_size"),
    ):
        config = f"{model}\n{batch}: 32\nmax_length: 512\n"
        tuned = tuner.tune(config, "rtx3050-laptop")
        assert tuned.sentence_with("8 to 16", "16 x 2 accumulated keeps the effective batch of 32")


@pytest.mark.parametrize(
    ("config", "change", "sentence"),
    [
        ("batch_size: 8\nfp16: false\n", None, "fp16 .* is off, and this GPU has tensor cores"),
        ("fp16: {enabled: false}\ntrain_micro_batch_size_per_gpu: 8\n", None, "fp16.enabled"),
        ("per_device_train_batch_size: 8\nfp16: false\ndeepspeed: zero2\n", None,
         "fp16 .* stays off: DeepSpeed's own configuration"),
        ("batch_size: 8\nfp16: false\ntorch_dtype: bfloat16\n", None,
         "fp16 .* stays off, because torch_dtype .* is bfloat16"),
        ("batch_size: 8\nfp16: false\nbf16: false\n", ("bf16", (False, True)), None),
    ],
)  # fmt: skip
def test_half_precision_that_is_off_is_never_silent_on_tensor_cores(
    config: str, change: tuple[str, object] | None, sentence: str | None, tuner: Tuner
) -> None:
    """002-13: `fp16: false` on tensor cores is switched on, or named with the reason."""
    tuned = tuner.tune(config, "rtx3050-laptop")
    precision_changes = {key: value for key, value in tuned.changes.items() if "16" in key}
    assert precision_changes == dict([change] if change else [])
    assert sentence is None or tuned.sentence_with(sentence), tuned.sentences


def test_a_gtx_1650_has_no_tensor_cores_though_it_is_turing(tuner: Tuner) -> None:
    """002-13: half precision is advised where it gains."""
    tuned = tuner.tune("batch_size: 8\nfp16: false\n", tuner.card("GeForce GTX 1650", 4, (7, 5)))
    assert "fp16" not in tuned.changes
    assert tuned.sentence_with("no tensor cores")


@pytest.mark.parametrize("key", ["max_length", "max_seq_length", "seq_len"])
@pytest.mark.parametrize(
    ("gib", "length", "is_named"), [(4, 512, True), (4, 256, False), (8, 512, False)]
)
def test_shorter_sequences_are_named_on_4_gb_and_never_written(
    gib: int, length: int, is_named: bool, key: str, tuner: Tuner
) -> None:
    """002-14: sequences of 128 to 256 tokens on 4 GB."""
    config = f"batch_size: 8\n{key}: {length}\n"
    tuned = tuner.tune(config, tuner.card("GeForce RTX 3050", gib, (8, 6)))
    assert bool(tuned.sentence_with(key, "128 to 256 tokens")) is is_named
    assert key not in tuned.changes


def test_the_gpu_is_measured_against_the_cpu_where_there_is_one() -> None:
    """002-17: standard measures how many times as fast as the CPU the GPU is; `--device cpu` has
    no such check. `test_verify_reports.py` has the line of the screen."""
    assert "speed-over-cpu" in [check.name for check in on_device(LEVELS["standard"], "cuda:0")]
    assert "speed-over-cpu" not in [check.name for check in on_device(LEVELS["standard"], "cpu")]


NO_NVCC = (
    "C:\\Users\\me> nvcc --version\n"
    "'nvcc' is not recognized as an internal or external command,\n"
    "operable program or batch file.\n"
)
CPU_BUILD = (
    'C:\\Users\\me> python -c "import torch; print(torch.__version__, torch.cuda.is_available())"\n'
    "2.5.1+cpu False\n"
)
NO_HOME = (
    "torch 2.5.1+cu124\nOSError: CUDA_HOME environment variable is not set. Please set it to your "
    "CUDA install root.\n"
)
NOT_BUILT = "Failed building wheel for flash-attn\n"
PARTS = "torch's wheels include all parts of CUDA that they need"


@pytest.mark.parametrize(
    ("text", "cause", "words"),
    [
        # Only `nvcc --version` failed, and torch is a CPU build.
        (f"{NO_NVCC}{CPU_BUILD}", "torch-cpu-build", PARTS),
        (f"nvcc: command not found\n{CPU_BUILD}", "torch-cpu-build", PARTS),
        (f'Der Befehl "nvcc" ist entweder falsch geschrieben oder konnte nicht gefunden werden.\n'
         f"{CPU_BUILD}", "torch-cpu-build", PARTS),
        # Of another build the reason stays open, and the answer says how to find it.
        (f"{NO_NVCC}>>> torch.cuda.is_available()\nFalse\n", "unknown", "torch.cuda.init()"),
        # Neighbours, in which something was built.
        (f"torch 2.5.1+cpu\nnvcc: command not found\n{NOT_BUILT}", "cuda-toolkit-missing", ""),
        (f"Windows 11, {NO_HOME}", "cuda-toolkit-missing", ""),
    ],
)  # fmt: skip
def test_a_toolkit_that_nothing_needed_is_not_the_cause(
    text: str, cause: str, words: str, reads: Any
) -> None:
    """002-7: a missing nvcc does not explain why torch sees no GPU."""
    read = reads(text)
    assert read.cause == cause and words in read.screen


@pytest.mark.parametrize("system", ["Windows 11, RTX 3050, ", "Ubuntu 22.04, RTX 3050, ", ""])
def test_a_changed_variable_needs_a_new_shell(system: str, reads: Any) -> None:
    """002-8: on every system, the answer says to open a new shell."""
    assert "open a new shell" in reads(f"{system}{NO_HOME}{NOT_BUILT}").screen


DLL = "Microsoft.VCRedist.2015+.x64"


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        ("[WinError 126] The specified module could not be found. Error loading fbgemm.dll", DLL),
        ("[WinError 1114] A dynamic link library (DLL) initialization routine failed.", DLL),
        # A neighbour on Linux, whose library is missing.
        ("libcudart.so.12: cannot open shared object file: No such file or directory",
         "gpusetup install"),
    ],
)  # fmt: skip
def test_verify_of_a_torch_whose_dll_fails_names_the_visual_cpp_runtime(
    error: str, hint: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """002-19: the same answer live as for the pasted error."""
    folder = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (python,) = (path for path in folder.glob("*/python*") if path.stem == "python")
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.run([str(python), "-c", ask], check=True, capture_output=True, text=True)
    torch = Path(site.stdout.strip()) / "torch"
    torch.mkdir(parents=True)
    (torch / "__init__.py").write_text(f"raise OSError({error!r})\n", encoding="utf-8")
    assert main(["verify", "--python", str(python)]) == 1
    said = "".join(capfd.readouterr())
    assert hint in said and (DLL in said) is (hint == DLL)
