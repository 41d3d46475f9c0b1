"""The torch of another Python on PATH is named from its files, and nothing of it is started."""

from __future__ import annotations

from pathlib import Path

import pytest
from judging import changed, found

from gpusetup.model.machine import Reading, Torch
from gpusetup.probe.python import read_other_torches
from gpusetup.system.system import System

SAYS = "from typing import Optional\n\n__version__ = '2.9.1+cu128'\ncuda = '12.8'\n"


def interpreter(prefix: Path, name: str, *folders: str) -> str:
    """A program that fails when started, beside site folders of which the last has torch."""
    (prefix / "bin").mkdir(parents=True)
    program = prefix / "bin" / name
    program.write_text("#!/bin/false\n", encoding="utf-8")
    for folder in folders:
        (prefix / "lib" / folder / "site-packages").mkdir(parents=True)
    torch = prefix / "lib" / folders[-1] / "site-packages" / "torch"
    torch.mkdir()
    (torch / "version.py").write_text(SAYS, encoding="utf-8")
    return str(program)


@pytest.mark.parametrize(
    ("name", "folders", "has"),
    [
        ("python3", ("python3.12",), True),
        ("python3.12", ("python3.11", "python3.12"), True),
        ("python3.11", ("python3.11", "python3.12"), False),
        ("python3", ("python3.11", "python3.12"), False),
    ],
)
def test_a_torch_is_found_where_it_is_certain_whose_it_is(
    tmp_path: Path, name: str, folders: tuple[str, ...], has: bool
) -> None:
    path = interpreter(tmp_path / "env", name, *folders)
    readings = tuple(read_other_torches(System(), (path, "/nowhere/bin/python3")))
    said = (Reading(subject="python.others", source=path, value="torch 2.9.1+cu128"),)
    assert readings == (said if has else ())


def test_the_answer_for_a_python_without_torch_names_the_one_that_has_it() -> None:
    other = Reading(subject="python.others", source="/opt/ml/bin/python3", value="torch 2.9.1")
    without = changed(torch=Torch(installed=False), readings=(other,))
    finding = found(without, "torch-missing")
    assert finding and finding.fix
    assert finding.fix.looks[-1].commands == ("gpusetup doctor --python /opt/ml/bin/python3",)
    alone = found(changed(torch=Torch(installed=False)), "torch-missing")
    assert alone and alone.fix and not alone.fix.looks
