"""Makers of GPUs: how one is told, what of it is judged, and that old snapshots are still read."""

from __future__ import annotations

import re

import pytest

from gpusetup.accelerators.makers import (
    BY_ID,
    LABEL,
    MAKERS,
    identified,
    is_judged,
    is_seen_only,
    maker_of,
    other_maker,
)
from gpusetup.catalog.file import load_catalog
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Gpu
from gpusetup.model.versions import Capability


def test_no_two_makers_share_what_tells_them() -> None:
    for name in ("id", "name", "pci", "label"):
        told = [value for maker in MAKERS if (value := getattr(maker, name)) is not None]
        assert len(told) == len(set(told)), name
    words = [word for maker in MAKERS for word in maker.words]
    assert len(words) == len(set(words))


def test_every_backend_of_the_catalog_is_somebodys_or_the_cpus_and_has_a_labels_form() -> None:
    for backend in load_catalog().backends:
        assert (maker_of(backend) is None) == (backend == "cpu"), backend
        assert re.fullmatch(LABEL, backend), backend


def test_only_nvidias_are_judged() -> None:
    assert [maker.id for maker in MAKERS if maker.judged] == ["nvidia"]
    for id in BY_ID:
        assert is_judged(id) != is_seen_only(id)
    assert not is_judged("1a03") and not is_seen_only("1a03")


@pytest.mark.parametrize(
    ("name", "maker"),
    [
        ("NVIDIA GeForce RTX 3090", None),
        ("Tesla T4", None),
        ("AMD Instinct MI300X", "amd"),
        ("Radeon RX 7900 XTX", "amd"),
        ("Intel(R) Arc(TM) A770", "intel"),
        ("Apple M2 Max", "apple"),
        ("", None),
    ],
)
def test_another_maker_is_told_by_a_word(name: str, maker: str | None) -> None:
    assert other_maker(name) == maker
    assert identified(Gpu(name=name)).maker == (maker or "nvidia")


def test_a_target_is_of_the_capability_or_as_it_was_read() -> None:
    assert identified(Gpu(name="L4", compute_capability=Capability(8, 9))).target == "sm_89"
    assert identified(Gpu(name="L4")).target is None
    read = Gpu(name="AMD Radeon RX 9070 XT", target="gfx1201")
    assert identified(read) == replace(read, maker="amd")
