"""The table of companions: its rows can be asked, are sourced, and agree with the catalog."""

from __future__ import annotations

import itertools
import re

from packaging.specifiers import SpecifierSet

from gpusetup.catalog.companion_table import (
    companion_table,
    takes_torch,
    turned,
)
from gpusetup.catalog.file import load_catalog
from gpusetup.model.versions import allows, parsed

TABLE = companion_table()
TORCHES = [row.torch for row in load_catalog().releases if parsed(row.torch) >= parsed("2.5")]
PAIRS = [(project, row) for project in TABLE.projects for row in project.rows]
WANTED = """torchvision torchaudio torchcodec torchao xformers triton triton-windows flash-attn
flash-attn-3 flash-attn-4 flashinfer-python sageattention bitsandbytes vllm sglang sglang-kernel
sgl-kernel unsloth lmdeploy deepspeed transformer-engine apex torch-tensorrt torch-geometric
torch-scatter torch-sparse torch-cluster pyg-lib mamba-ssm causal-conv1d onnxruntime-gpu jax
tensorflow cupy-cuda13x cupy-cuda12x numba-cuda""".split()  # noqa: SIM905


def test_every_companion_that_people_ask_about_has_a_row() -> None:
    assert [name for name in WANTED if TABLE.project(name) is None] == []
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", TABLE.as_of)


def test_every_row_says_where_it_is_from_and_can_be_turned_round_where_it_must() -> None:
    for project, row in PAIRS:
        assert row.source, project.name
        SpecifierSet(row.versions)
        if row.torch:
            SpecifierSet(row.torch)
            assert turned(row.versions), (project.name, row.versions)


def test_every_project_says_what_to_take_where_it_does_not_fit() -> None:
    assert [one.name for one in TABLE.projects if not (one.alternative and one.source)] == []


def test_what_must_be_built_says_what_that_takes() -> None:
    built = [one for one in TABLE.projects if one.wheels == "source"]
    assert built
    assert [one.name for one in built if not one.build] == []


def test_a_release_pages_wheel_has_its_exact_name() -> None:
    flash = TABLE.project("flash-attn")
    assert flash is not None
    assert flash.releases[0].filename("3.12") == (
        "flash_attn-2.8.3+cu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl"
    )


def test_the_table_agrees_with_the_catalog_about_torchs_own_companions() -> None:
    for release in load_catalog().releases:
        if parsed(release.torch) < parsed("2.5"):
            continue
        for name, version in (
            ("torchvision", release.torchvision),
            ("torchaudio", release.torchaudio),
        ):
            project = TABLE.project(name)
            assert project is not None
            if version is not None:
                assert takes_torch(project, version, release.torch) is not False, (name, version)


def test_no_two_rows_of_a_project_speak_of_the_same_release() -> None:
    for project in TABLE.projects:
        for one, other in itertools.combinations(project.rows, 2):
            for row, against in ((one, other), (other, one)):
                version = re.sub(r"[<>=!]+|\.\*", "", row.versions)
                both = allows(row.versions, version)
                assert not (both and allows(against.versions, version)), (
                    project.name,
                    version,
                )
