"""From a document of gathered facts to the shape of `gpusetup/data/catalog.json`.

The facts (torch_compat.json and its successors) hold every wheel's Pythons, architectures and
sources in full; the catalog keeps what decides, one line a row, so that a diff can be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

Row = dict[str, Any]
Facts = Mapping[str, Any]

PLATFORMS = {
    "linux_x86_64": "linux-x86_64",
    "linux_aarch64": "linux-aarch64",
    "windows_amd64": "windows-x86_64",
    "macos_arm64": "macos-aarch64",
    "macos_x86_64": "macos-x86_64",
}
"""The facts' platform -> ours."""

UNLABELLED_BEFORE = (2, 6)
"""aarch64 wheels carry a local label from torch 2.6 on."""

KEPLER_UNTIL = (2, 3)
"""From torch 2.4 on cu118 builds ship a cuDNN without Kepler kernels: sm_37 counts as absent."""

OLD_TAGS = ("cu92", "cu100", "cu101", "cu102", "cu110", "cu111", "cu113", "cu115")
"""Index labels of torch 1.12 and before, which the catalog does not list build by build."""

RANGES = {
    "Quadro P400 to P6000": [f"Quadro P{n}" for n in (400, 600, 620, 1000, 2000, 2200, 3000, 3200)],
    "Quadro RTX 3000 to 8000": ["Quadro RTX 3000", "Quadro T1000", "Quadro T2000"],
    "RTX A400 to A6000": [f"NVIDIA RTX A{n}" for n in (400, 500, 1000, 3000)],
    "RTX 2000 to 6000 Ada": [
        *(f"NVIDIA RTX {n} Ada Generation Laptop GPU" for n in (500, 1000, 3000, 3500)),
        "NVIDIA RTX 5880 Ada Generation",
    ],
}
"""Boards inside the ranges of the facts' families that the full table lacks."""

MATRIX = "CUDA Toolkit, Driver, and Architecture Matrix"
FEATURES_12_9 = "CUDA Features Archive, 12.9: compiler targets sm_103 and sm_121"
FIRST_DRIVERS: Row = {
    "as_of": "2026-11-20",
    "certainty": "sourced: the driver of the first CUDA toolkit that compiles for the "
    "architecture; a product's own row where its maker names a later driver",
    "source": [
        "https://docs.nvidia.com/datacenter/tesla/drivers/"
        "cuda-toolkit-driver-and-architecture-matrix.html",
        "https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/ (table of toolkit drivers)",
        "https://docs.nvidia.com/cuda/archive/12.9.1/cuda-features-archive/",
        "https://docs.nvidia.com/datacenter/tesla/tesla-release-notes-570-133-20/",
        "https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/platform-support.html",
        "https://docs.nvidia.com/dgx/dgx-spark-porting-guide/porting/dependencies.html",
        "https://docs.nvidia.com/dgx/dgxgb300nvl72-release-notes/package-contents.html",
    ],
    "rows": [
        {"architecture": "Pascal", "capability": "6.0", "linux": "367", "source": MATRIX},
        {"architecture": "Pascal", "capability": "6.1", "linux": "367", "source": MATRIX},
        {"architecture": "Volta", "capability": "7.0", "linux": "384", "source": MATRIX},
        {"architecture": "Turing", "capability": "7.5", "linux": "410", "source": MATRIX},
        {"architecture": "Ampere", "capability": "8.0", "linux": "450", "source": MATRIX},
        {"architecture": "Ampere", "capability": "8.6", "linux": "455", "source": MATRIX},
        {"architecture": "Ada Lovelace", "capability": "8.9", "linux": "520", "source": MATRIX},
        {"architecture": "Hopper", "capability": "9.0", "linux": "520", "source": MATRIX},
        {"architecture": "Blackwell", "capability": "10.0", "linux": "570", "source": MATRIX},
        {"architecture": "Blackwell", "capability": "12.0", "linux": "570", "source": MATRIX},
        {
            "architecture": "Blackwell Ultra",
            "capability": "10.3",
            "linux": "575",
            "source": FEATURES_12_9,
        },
        {
            "architecture": "Blackwell",
            "capability": "12.1",
            "linux": "575",
            "source": FEATURES_12_9,
        },
        {
            "architecture": "Blackwell",
            "capability": "11.0",
            "linux": "580",
            "source": "CUDA Features Archive, 13.0: sm_110",
        },
        {
            "architecture": "Blackwell",
            "capability": "10.0",
            "gpu": "B200",
            "linux": "570.133.20",
            "windows": "572.83",
            "source": "GPU Operator platform support: HGX B200 requires 570.133.20",
        },
        {
            "architecture": "Blackwell",
            "capability": "12.0",
            "gpu": "RTX PRO 6000 Blackwell Server",
            "linux": "575.57.08",
            "windows": "576.57",
            "source": "GPU Operator platform support: 575.57.08 or later is required",
        },
        {
            "architecture": "Blackwell Ultra",
            "capability": "10.3",
            "gpu": "GB300",
            "linux": "580",
            "source": "DGX GB300 release notes: every release has a driver of R580",
        },
        {
            "architecture": "Blackwell",
            "capability": "12.1",
            "gpu": "GB10",
            "linux": "580",
            "source": "DGX Spark porting guide: CUDA toolkit 13.0 at least",
        },
    ],
}
"""The first driver of every architecture. A branch (`570`) counts on Windows too: its numbers run
a little higher inside the same branch; an exact version has its Windows number beside it."""

DROPPED: Row = {
    "as_of": "2026-11-20",
    "certainty": "sourced",
    "source": [
        "https://docs.nvidia.com/deeplearning/cudnn/backend/latest/reference/support-matrix.html",
        "PyPI METADATA of torch 2.4.0: nvidia-cudnn-cu12==9.1.0.70; of 2.3.1: 8.9.2.26",
    ],
    "rows": [
        {
            "architecture": "Kepler",
            "major": 3,
            "from_torch": "2.4.0",
            "because": "torch 2.4 and later carry cuDNN 9, which has no kernels for Kepler",
            "source": "cuDNN's support matrix begins with Maxwell (5.0) from 9.0 on",
        }
    ],
}

ALSO_CALLED = {
    "Jetson AGX Orin 64 GB": ("Jetson AGX Orin Developer Kit",),
    "Jetson AGX Orin 32 GB": ("Jetson AGX Orin Developer Kit",),
    "Jetson Orin NX 16 GB": ("Jetson Orin NX Engineering Reference Developer Kit",),
    "Jetson Orin NX 8 GB": ("Jetson Orin NX Engineering Reference Developer Kit",),
    "Jetson Orin Nano 8 GB": ("Jetson Orin Nano Developer Kit",),
    "Jetson Orin Nano Super": (
        "Jetson Orin Nano Developer Kit Super",
        "Jetson Orin Nano Engineering Reference Developer Kit Super",
    ),
    "Jetson Thor T5000": ("Jetson AGX Thor Developer Kit", "Jetson AGX Thor T5000"),
    "Jetson Thor T4000": ("Jetson AGX Thor T4000",),
}
"""Boards by the names that their device tree and their users give them."""

ON_LINUX = ("linux-x86_64", "linux-aarch64")
COMPANIONS: Row = {
    "as_of": "2026-11-20",
    "certainty": "verified where the wheel's METADATA and its check of CUDA were read, "
    "else as each row says",
    "source": [
        "PyPI wheels: METADATA, version.py, torchaudio/_extension/utils.py, "
        "torchvision/extension.py",
        "https://docs.pytorch.org/audio/2.11.0/installation.html",
        "https://github.com/pytorch/audio/releases/tag/v2.11.1",
    ],
    "rows": [
        {
            "name": "torchaudio",
            "version": "2.11.0",
            "torch": ">=2.11.0",
            "cuda": "release",
            "built_with": "2.11.0",
            "unlabelled": {**dict.fromkeys(ON_LINUX, "cu130"), "windows-x86_64": "cpu"},
            "released": "2026-03-23",
            "status": "verified",
            "source": "its METADATA asks for no torch; at import it compares CUDA 13.0 with 13.2",
        },
        {
            "name": "torchaudio",
            "version": "2.11.1",
            "torch": ">=2.11.0",
            "declares": "torch>=2.11",
            "cuda": "major",
            "released": "2026-10-28",
            "status": "sourced",
            "source": "release notes; no index was read: which backends have it is not known",
        },
        {
            "name": "torchvision",
            "version": "0.29.1",
            "torch": ">=2.14.0",
            "declares": "torch>=2.14.0",
            "cuda": "major",
            "built_with": "2.14.1",
            "unlabelled": {"linux-x86_64": "cu130"},
            "status": "verified",
            "source": "its METADATA; torchvision/extension.py compares CUDA's major",
        },
        {
            "name": "torchvision",
            "version": "0.29.2",
            "torch": ">=2.14.0",
            "declares": "torch>=2.14.0",
            "cuda": "major",
            "built_with": "2.15.0",
            "unlabelled": {**dict.fromkeys(ON_LINUX, "cu132"), "windows-x86_64": "cpu"},
            "released": "2026-10-28",
            "status": "verified",
            "source": "its METADATA; torchvision/extension.py compares CUDA's major",
        },
    ],
}
"""Companions on torch's stable ABI: they serve later torch too."""

CONDA_FORGE_126 = "5.0 6.0 7.0 7.5 8.0 8.6 9.0"
"""conda-forge's CUDA 12.6 builds (torch 2.5 and 2.6): inferred from the 12.8/12.9 list."""


def catalog_of(facts: Facts) -> Row:
    """The whole catalog document made from the facts."""
    compat = facts["cuda_driver_min"]
    return {
        "schema": 1,
        "as_of": facts["meta"]["generated"],
        "releases": _group(
            facts,
            "verified where the wheel was read, else as each build says",
            facts["tags"]["source"] + ["PyPI simple index: wheel names, METADATA, wheel contents"],
            [_release(version, row) for version, row in facts["releases"].items()],
        ),
        "conda": _group(facts, "sourced", facts["conda"]["source"], _conda(facts)),
        "other_backends": _group(facts, "sourced", facts["tags"]["source"], _others(facts)),
        "families": _group(facts, "sourced", compat["source"], _families(compat)),
        "toolkits": _group(facts, "sourced", compat["toolkits"]["source"], _toolkits(compat)),
        "branches": _group(
            facts,
            "sourced or observed",
            compat["nvidia_smi_branches"]["source"],
            _branches(compat),
        ),
        "retired": _group(
            facts,
            "sourced",
            [str(limit) for row in compat["limits"][-1:] for limit in row["source"]],
            [
                {"architecture": "Kepler", "major": 3, "last_branch": 470},
                {"architecture": "Maxwell", "major": 5, "last_branch": 580},
                {"architecture": "Pascal", "major": 6, "last_branch": 580},
                {"architecture": "Volta", "major": 7, "minor": 0, "last_branch": 580},
            ],
        ),
        "first_drivers": FIRST_DRIVERS,
        "dropped": DROPPED,
        "companions": COMPANIONS,
        "gpus": _group(
            facts,
            "capability sourced; clocks and memory from a database",
            _gpu_sources(facts),
            _gpus(facts),
        ),
        "gpu_names": _group(
            facts,
            "sourced; single older board names partly inferred",
            facts["gpus"]["cc_by_family"]["source"],
            _names(facts),
        ),
    }


def _group(facts: Facts, certainty: str, source: Iterable[str], rows: list[Row]) -> Row:
    return {
        "as_of": facts["meta"]["generated"],
        "certainty": certainty,
        "source": sorted(set(source)),
        "rows": rows,
    }


# --- releases ---------------------------------------------------------------------------------


def _release(version: str, row: Facts) -> Row:
    vision = row["torchvision"]
    found: Row = {"torch": version, "released": row["date"]}
    found["torchvision"] = vision["version"]
    needs = re.sub(r"[()\s]|^torch", "", vision["requires_torch"])
    if not needs.startswith("=="):
        found["torchvision_needs"] = needs
    if excluded := re.search(r"!=([\d.]+)", vision.get("requires_python") or ""):
        found["torchvision_excludes"] = excluded[1]
    found["torchaudio"] = row["torchaudio"]["version"]
    found["platforms"] = [
        platform
        for theirs, ours in PLATFORMS.items()
        if theirs in row["python"]["by_platform"]
        for platform in (_platform(version, row, theirs, ours),)
    ]
    return found


def _platform(version: str, row: Facts, theirs: str, ours: str) -> Row:
    default = row["pypi_default"][theirs]
    found: Row = {"on": ours, "pythons": " ".join(row["python"]["by_platform"][theirs])}
    if "glibc" in default:
        found["glibc"] = default["glibc"]["min_glibc"]
    if ours.startswith("macos"):
        found["macos"] = min(
            (tag.split("_")[1] + "." + tag.split("_")[2] for tag in default["wheel_tags"]),
            key=lambda text: tuple(map(int, text.split("."))),
        )
    if ours.startswith("macos") or (ours == "linux-aarch64" and _pair(version) < UNLABELLED_BEFORE):
        found["labelled"] = False
    found["builds"] = [{"backend": "cpu", "status": "verified"}]
    if not ours.startswith("macos"):
        tags = row["published_tags"][theirs]["cuda"]
        found["builds"] += [_build(version, ours, tag, row["arch"][theirs][tag]) for tag in tags]
    return found


def _build(version: str, platform: str, tag: str, arch: Facts) -> Row:
    kernels = arch["sm"]
    note = arch.get("note", "")
    if "sm_37" in kernels and _pair(version) > KEPLER_UNTIL:
        kernels = [sm for sm in kernels if sm != "sm_37"]
        note = "3.7 is left out: cuDNN 9.1 of these builds has no kernels for Kepler"
    ptx = [code for code in arch["ptx"] if code.replace("compute", "sm") in kernels]
    found: Row = {"backend": tag, "arch": " ".join(_dotted(sm, ptx) for sm in kernels)}
    if platform == "linux-x86_64" and (version, tag) == ("2.6.0", "cu126"):
        found["glibc"] = "2.28"
    found["status"] = arch["status"]
    if re.search("cuDNN 9|regression|not certain|inferred|nightlies", note):
        found["note"] = note
    return found


def _dotted(sm: str, ptx: list[str]) -> str:
    digits = sm.removeprefix("sm_")
    plus = "+PTX" if f"compute_{digits}" in ptx else ""
    return f"{digits[:-1]}.{digits[-1]}{plus}"


def _pair(version: str) -> tuple[int, int]:
    major, minor, *_ = version.split(".")
    return int(major), int(minor)


# --- conda ------------------------------------------------------------------------------------


def _conda(facts: Facts) -> list[Row]:
    return [*_pytorch_channel(facts), *_conda_forge(facts)]


def _pytorch_channel(facts: Facts) -> list[Row]:
    """torch 2.0 to 2.5.1 on the channel `pytorch`; kernels as in the wheels of that CUDA."""
    spans = facts["conda"]["pytorch_channel"]["pytorch_cuda_by_release"]
    rows = []
    for version, release in facts["releases"].items():
        cudas = next((found for span, found in spans.items() if _in_span(version, span)), ())
        for theirs in ("linux_x86_64", "windows_amd64") if cudas else ():
            pythons = [p for p in release["python"]["all_platforms"] if not p.endswith("t")]
            common = {"torch": version, "channel": "conda-pytorch", "on": PLATFORMS[theirs]}
            common["pythons"] = " ".join(pythons)
            if theirs.startswith("linux"):
                common["glibc"] = "2.17"
            rows.append({**common, "backend": "cpu", "status": "sourced"})
            for cuda in cudas:
                tag = "cu" + cuda.replace(".", "")
                build = _build(version, PLATFORMS[theirs], tag, release["arch"][theirs][tag])
                rows.append({**common, "backend": tag, "arch": build["arch"], "status": "inferred"})
    return rows


def _conda_forge(facts: Facts) -> list[Row]:
    """torch 2.5 to 2.13.0 on conda-forge."""
    forge = facts["conda"]["conda_forge"]
    rows = []
    for version, release in facts["releases"].items():
        span = next((b for b in forge["builds"] if _in_span(version, b["torch"])), None)
        if span is None:
            continue
        pythons = [p for p in release["python"]["all_platforms"] if not p.endswith("t")]
        for key, platform in (
            ("linux_cuda", "linux-x86_64"),
            ("windows_cuda", "windows-x86_64"),
            ("linux_aarch64_cuda", "linux-aarch64"),
        ):
            for cuda in span.get(key, ()):
                arch = _forge_arch(forge, cuda, platform)
                if arch is None:
                    continue
                row = {"torch": version, "channel": "conda-forge", "on": platform}
                row["pythons"] = " ".join(pythons)
                if platform.startswith("linux"):
                    row["glibc"] = "2.28" if cuda.startswith("13") else "2.17"
                row["backend"] = "cu" + cuda.replace(".", "")
                row["arch"] = arch
                row["status"] = "inferred" if cuda == "12.6" else "sourced"
                rows.append(row)
            if span.get(key):
                cpu = {"torch": version, "channel": "conda-forge", "on": platform}
                cpu["pythons"] = " ".join(pythons)
                rows.append({**cpu, "backend": "cpu", "status": "sourced"})
    return rows


def _forge_arch(forge: Facts, cuda: str, platform: str) -> str | None:
    if cuda == "12.6":
        return CONDA_FORGE_126
    machine = platform.partition("-")[2]
    for name, found in forge["arch_lists"].items():
        cudas, _, of = name.partition(" ")
        if cuda in cudas.split("/") and of == machine:
            return " ".join(found)
    return None


def _in_span(version: str, span: str) -> bool:
    first, _, last = span.partition("-")
    top = tuple(map(int, (last or first).split(".")))
    return _pair(first + ".0") <= _pair(version) and (
        tuple(map(int, version.split(".")))[: len(top)] <= top
    )


# --- the rest ---------------------------------------------------------------------------------


def _others(facts: Facts) -> list[Row]:
    """Index labels that exist but that are not fitted to an NVIDIA GPU, or not confirmed."""
    found: dict[str, list[str]] = {tag: [] for tag in OLD_TAGS}
    for version, row in facts["releases"].items():
        for kind in ("rocm_linux_x86_64", "xpu"):
            for tag in row["published_tags"][kind]["tags"]:
                found.setdefault(tag, []).append(version)
        for tag in row["published_tags"]["linux_x86_64"].get("cuda_unconfirmed", ()):
            found.setdefault(tag, [])
    return [{"backend": tag, "torch": " ".join(versions)} for tag, versions in found.items()]


def _families(compat: Facts) -> list[Row]:
    rows = []
    for major in ("11", "12", "13"):
        family = compat["families"][major]
        row = {
            "cuda": major,
            "linux": family["linux_min"],
            "windows": family["windows_min"].split()[0],
        }
        rows.append(row)
        for cuda, alone in family.get("exceptions", {}).items():
            rows.append(
                {"cuda": cuda, "linux": alone["linux_min"], "windows": alone["windows_min"]}
            )
    return rows


def _branches(compat: Facts) -> list[Row]:
    """The branches as listed; 375 came with CUDA 8.0 (see the toolkits)."""
    rows = compat["nvidia_smi_branches"]["entries"]
    return [
        {"branch": 375, "cuda": "8.0"},
        *({k: row[k] for k in ("branch", "cuda")} for row in rows),
    ]


def _toolkits(compat: Facts) -> list[Row]:
    rows = []
    for row in compat["toolkits"]["entries"]:
        found = {"cuda": row["cuda"]}
        linux = "615.71.09" if row["cuda"] == "13.4" else row["linux"]
        rows.append(
            {**found, "linux": linux, **({"windows": row["windows"]} if row["windows"] else {})}
        )
    return rows


def _gpu_sources(facts: Facts) -> list[str]:
    return [source for row in facts["gpus"]["entries"] for source in row["source"]]


def _gpus(facts: Facts) -> list[Row]:
    plain = "chip architecture memory_gb memory_type memory_bandwidth_gbs sm_count cuda_cores"
    also = "boost_mhz tdp_w released variable_clock note"
    rows = []
    for gpu in facts["gpus"]["entries"]:
        called = ALSO_CALLED.get(gpu["name"], ())
        row: Row = {"name": gpu["name"], "smi_names": [*gpu["smi_names"], *called]}
        row["capability"] = gpu["compute_capability"]
        row |= {
            key: gpu[key] for key in f"{plain} {also}".split() if gpu.get(key) not in (None, False)
        }
        row["peak_tflops"] = {k: v for k, v in gpu["peak_tflops_dense"].items() if v is not None}
        published = [k for k, status in gpu["peak_status"].items() if status == "published"]
        if published:
            row["peaks_published"] = published
        rows.append(row)
    return rows


def _names(facts: Facts) -> list[Row]:
    """Boards that the full table lacks: name and capability only; its ranges spelled out."""
    known = [
        _words(name)
        for gpu in facts["gpus"]["entries"]
        for name in (gpu["name"], *gpu["smi_names"])
    ]
    rows = []
    for capability, names in facts["gpus"]["cc_by_family"]["entries"].items():
        spelled = [name for text in names for name in RANGES.get(text, (text,))]
        single = [
            name
            for name in spelled
            if not re.search(r"xx| to |,|\(", name) and not any(_words(name) <= k for k in known)
        ]
        if single:
            rows.append({"capability": capability, "names": single})
    return rows


def _words(name: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", name.lower())) - {"nvidia"}
