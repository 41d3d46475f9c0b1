"""What the simulator knows by itself: constants that no rule made, each from NVIDIA's or the
distributions' own pages (CUDA release notes, driver READMEs, packages of 2026-11)."""

from __future__ import annotations

NEWEST_OF_BRANCH = {
    "390": "390.157", "418": "418.226.00", "450": "450.248.02", "460": "460.106.00",
    "470": "470.256.02", "510": "510.108.03", "515": "515.105.01", "525": "525.147.05",
    "535": "535.288.01", "550": "550.163.01", "560": "560.35.05", "565": "565.77",
    "570": "570.211.01", "575": "575.64.05", "580": "580.126.09", "590": "590.48.01",
    "595": "595.45.04", "610": "610.43.02", "615": "615.71.09",
}  # fmt: skip
"""The release that a distribution's package of a branch holds."""


CUDA_OF_BRANCH = {
    "390": "9.1", "418": "10.1", "450": "11.0", "460": "11.2", "470": "11.4", "510": "11.6",
    "515": "11.7", "525": "12.0", "535": "12.2", "550": "12.4", "560": "12.6", "565": "12.7",
    "566": "12.7", "570": "12.8", "572": "12.8", "575": "12.9", "576": "12.9", "580": "13.0",
    "581": "13.0", "590": "13.1", "595": "13.2", "610": "13.3", "615": "13.4",
}  # fmt: skip

FIRST_BRANCH = (
    ((10, 0), 570), ((8, 9), 520), ((9, 0), 515), ((8, 6), 455), ((8, 0), 450), ((7, 5), 410),
    ((7, 0), 384), ((6, 0), 375), ((0, 0), 0),
)  # fmt: skip
"""Capability from which on -> the first Linux branch that knows it; the first row that holds."""

LAST_BRANCH = (((7, 5), 9999), ((5, 0), 580), ((3, 0), 470), ((0, 0), 390))
"""Capability from which on -> the last branch that knows it."""

OPEN_FROM, OPEN_ONLY_FROM = (7, 5), (10, 0)
"""Turing: the first GPUs of the open kernel modules; Blackwell: the first that need them."""

FLOOR_OF_MAJOR = {
    "11": {"linux": (450, 80, 2), "windows": (452, 39)},
    "12": {"linux": (525, 60, 13), "windows": (528, 33)},
    "13": {"linux": (580, 65, 6), "windows": (580, 0)},
}
"""CUDA major -> the least driver (minor-version compatibility)."""


PYPI_BACKEND = (
    ((2, 11), "cu130"), ((2, 8), "cu128"), ((2, 7), "cu126"), ((2, 4), "cu124"),
    ((2, 1), "cu121"), ((1, 13), "cu117"),
)  # fmt: skip
"""The Linux x86_64 wheels of the default index, by torch's release (its release notes)."""

DEFAULT_INDEX = "the default index"

PCI_NAMES = {
    "2504": "NVIDIA GeForce RTX 3060",
    "2184": "NVIDIA GeForce GTX 1660",
    "2684": "NVIDIA GeForce RTX 4090",
    "26b9": "NVIDIA L40S",
    "20b0": "NVIDIA A100-SXM4-40GB",
    "24dd": "NVIDIA GeForce RTX 3070 Laptop GPU",
    "1b06": "NVIDIA GeForce GTX 1080 Ti",
    "2204": "NVIDIA GeForce RTX 3090",
    "2b85": "NVIDIA GeForce RTX 5090",
    "1eb8": "Tesla T4",
    "25a2": "NVIDIA GeForce RTX 3050 Laptop GPU",
    "20b2": "NVIDIA A100-SXM4-80GB",
    "1db1": "Tesla V100-SXM2-16GB",
    "2331": "NVIDIA H100 PCIe",
    "1e07": "NVIDIA GeForce RTX 2080 Ti",
    "13c0": "NVIDIA GeForce GTX 980",
    "2901": "NVIDIA B200",
    "102d": "Tesla K80",
}
"""Ids of GPUs that machines show on the bus before a driver names them."""

PINS = {
    "xformers": {
        "0.0.27.post2": "2.4.0", "0.0.28.post1": "2.4.1", "0.0.28.post2": "2.5.0",
        "0.0.28.post3": "2.5.1", "0.0.29.post3": "2.6.0", "0.0.30": "2.7.0",
        "0.0.31.post1": "2.7.1", "0.0.32.post2": "2.8.0", "0.0.33": "2.9.0",
    },
    "vllm": {"0.6.6": "2.5.1", "0.9.2": "2.7.0"},
}  # fmt: skip
"""Packages whose wheels require one torch (their Requires-Dist), version -> torch."""
