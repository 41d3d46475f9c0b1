"""What is known about what starts containers, and about tools that read nvidia-smi."""

from __future__ import annotations

from gpusetup.rules.fact import Fact

TOOLKIT_DOC = "NVIDIA Container Toolkit documentation, troubleshooting"

FACTS: tuple[Fact, ...] = (
    Fact(
        id="container-toolkit-missing",
        title="Docker has no nvidia device driver or runtime",
        means="The toolkit registers the runtime that puts the driver's files into a container.",
        proven_by="The daemon cannot select a device driver, or knows no runtime nvidia",
        not_when="container-no-gpu: the container starts, without GPUs",
        way_out="Install nvidia-container-toolkit on the host, configure and restart docker",
        source=TOOLKIT_DOC,
    ),
    Fact(
        id="container-cdi-unresolvable",
        title="a CDI device cannot be resolved",
        means="CDI specifications name the GPUs; there is none, or the engine does not read it.",
        proven_by="The engine names the device that it cannot resolve",
        not_when="container-toolkit-missing: the engine knows no driver at all",
        way_out="nvidia-ctk cdi generate, after every driver update",
        source="NVIDIA Container Toolkit documentation, CDI support",
    ),
    Fact(
        id="container-hook-failed",
        title="the toolkit cannot prepare a container",
        means="nvidia-container-cli asks the host's driver first, and that fails.",
        proven_by="Its error line",
        not_when="driver-missing, driver-not-loaded or nvml-mismatch of the host, where it says so",
        way_out="Make nvidia-smi work on the host",
        source=TOOLKIT_DOC,
    ),
    Fact(
        id="k8s-gpu-not-allocatable",
        title="Kubernetes has no free nvidia.com/gpu",
        means="No device plugin, an unhealthy GPU, taints, a quota, or a full cluster.",
        proven_by="The scheduler or the kubelet says so",
        not_when="container-no-gpu: the pod runs and asked for none",
        way_out="Look at the nodes' allocatable GPUs and at the device plugin",
        source="Kubernetes documentation, schedule GPUs; NVIDIA k8s-device-plugin",
    ),
    Fact(
        id="smi-banner-misread",
        title="a tool misreads the banner of nvidia-smi",
        means="From driver 610 on the banner says CUDA UMD Version; old patterns find nothing.",
        proven_by="The tool says that it found no CUDA version, beside such a banner",
        not_when="A driver that is missing or too old",
        way_out="Name the build; update the tool",
        source="nvidia-smi of driver 610",
    ),
)
