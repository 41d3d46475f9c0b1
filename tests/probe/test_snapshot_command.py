"""`gpusetup snapshot`, and how all commands name the machine that they read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpusetup.cli import main
from gpusetup.probe.snapshot_files import dump_snapshot, load_snapshot, machine_named
from gpusetup.system.system import System


def test_a_snapshot_of_this_machine_is_one_document_that_can_be_read_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["snapshot", "--json"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert json.loads(printed)["schema"] == "gpusetup.snapshot/1"
    file = tmp_path / "machine.json"
    assert main(["snapshot", "--output", str(file)]) == 0
    assert capsys.readouterr().out == ""
    assert load_snapshot(file).os.family == System().family


CUSTOMERS = {
    "LD_LIBRARY_PATH": "/usr/local/cuda-12.4/lib64:/opt/clientname-acme/lib:~/clientname/lib",
    "NCCL_SOCKET_IFNAME": "^clientname0,eth0,enp1s0f0np0",
    "GLOO_SOCKET_IFNAME": "clientname-net",
    "TORCH_CUDA_ARCH_LIST": "8.0;8.6+PTX of Clientname",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:128,clientname:1",
    "CONDA_DEFAULT_ENV": "clientname-prod",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
}


def test_a_customers_name_is_not_shared_and_the_answer_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = json.loads(dump_snapshot(machine_named("healthy")))
    record["environment"] = CUSTOMERS
    record["conda"] = {"name": "clientname-prod"}
    record["torch"]["installer"] = "clientname deploy"
    for package in record["packages"]:
        package["installer"] = "Clientname's own"
    folder = {"folder": "/opt/clientname-acme/lib", "libraries": "libcudart.so"}
    said = {"kind": "foreign-library", "source": "LD_LIBRARY_PATH", "text": folder["folder"]}
    record["events"] = [{**said, "values": {**folder, "variable": "LD_LIBRARY_PATH"}}]
    private, shared = tmp_path / "private.json", tmp_path / "shared.json"
    private.write_text(json.dumps(record), encoding="utf-8")
    assert main(["snapshot", "--from", str(private), "--output", str(shared)]) == 0
    assert "clientname" not in shared.read_text(encoding="utf-8").lower()
    kept = load_snapshot(shared).environment
    assert kept["LD_LIBRARY_PATH"].startswith("/usr/local/cuda-12.4/lib64:/opt/dir-")
    assert kept["NCCL_SOCKET_IFNAME"].endswith(",eth0,enp1s0f0np0")
    assert kept["TORCH_CUDA_ARCH_LIST"].startswith("8.0;8.6+PTX ")
    assert kept["PYTORCH_CUDA_ALLOC_CONF"].startswith("expandable_segments:True,max_split_size_mb:")
    answers = []
    for file in (private, shared):
        code = main(["doctor", "--json", "--from", str(file)])
        answer = json.loads(capsys.readouterr().out)
        found = [(one["id"], one["severity"]) for one in answer["findings"]]
        answers.append((code, answer["cause"], found))
    assert answers[0] == answers[1]
    assert {"ld-library-path-conflict"} <= {id for id, _ in answers[0][2]}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--from", "rtx3050"], 2, "the example machines: `amd`"),
        (["--from", "/nowhere/machine.json"], 2, "cannot be read: No such file"),
        (["--from", "rtx3050-laptop", "--python", "/x"], 2, "not allowed with argument --from"),
        (["--python", "/nowhere/python"], 2, "`--python /nowhere/python` is not there"),
        (["--output", "/nowhere/x.json", "--from", "healthy"], 3, "Cannot write"),
    ],
)
def test_wrong_words_end_with_a_line_and_a_code(
    words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["snapshot", *words]) == code
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.out == "" and "Traceback" not in printed.err
