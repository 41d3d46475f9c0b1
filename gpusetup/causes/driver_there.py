"""Whether the driver is there, may have the GPU, and is new enough."""

from __future__ import annotations

from gpusetup.causes import alike
from gpusetup.causes.record import Cause
from gpusetup.evidence.context import RuleContext, answering, events
from gpusetup.evidence.places import in_wsl
from gpusetup.messages.fragments import IF_ONLY
from gpusetup.messages.row import says
from gpusetup.model.shell import Lines, lines
from gpusetup.model.versions import parsed


def serves_every_torch(context: RuleContext) -> bool:
    """Whether the driver starts the CUDA of every build."""
    newest = max(parsed(build.cuda or "0").major for build in context.catalog.builds)
    return parsed(context.driver.cuda or "0").major >= newest


def _switch_on(context: RuleContext) -> Lines:
    tool = events(context, "hybrid-gpu-off")[0].values.get("tool", "")
    return lines(HYBRID_ON[tool], "sudo reboot") if tool in HYBRID_ON else ()


HYBRID_ON = {
    "bbswitch": "echo ON | sudo tee /proc/acpi/bbswitch",
    "prime-select": "sudo prime-select on-demand",
    "asusctl": "supergfxctl --mode Hybrid",
    "supergfxctl": "supergfxctl --mode Hybrid",
    "envycontrol": "sudo envycontrol --switch hybrid",
    "system76-power": "sudo system76-power graphics hybrid",
    "optimus-manager": "optimus-manager --switch hybrid",
}
"""The tool that switched the GPU off -> what switches it on."""

CAUSES = (
    Cause(
        "driver-too-old",
        title="{who} needs {needs}; found driver {driver}",
        plain="The program or torch needs a newer driver",
        means="Each major CUDA version has a minimum driver; within 11, 12 and 13 every minor version "
        "runs on it.",
        text="Update the driver, or install a torch for an older CUDA",
        proven_by="The driver is older than torch's CUDA needs",
        not_when="The driver itself says that it supports that CUDA",
        source='NVIDIA, "CUDA Compatibility"',
        lacks="driver",
        explains=(
            "cuda-sees-no-device",
            "container-hook-failed",
            "resolver-conflict",
        ),
        impossible=(serves_every_torch,),
        by_check=True,
        says=(
            r"driver on your system is (?P<refused>too old)(?! \(found version \d{7})(?: \(found version (?P<found>\d{4,6})\))?",
            r"CUDA driver version is (?P<refused>insufficient for CUDA runtime version)",
            r"(?P<refused>cudaErrorInsufficientDriver)",
            r"undefined symbol: (?P<symbol>cu(?:GreenCtx|DevSm|DeviceGetDevResource|TensorMap|Multicast|MemcpyBatch|LaunchKernelEx|KernelGet|Library|StreamGetGreenCtx|StreamBatchMemOp|CtxFromGreenCtx|Coredump|Logs)\w{0,40})",
            r"installed NVIDIA graphics driver is unsupported.{0,200}?unsupported driver range: \[0\.0,",
            r"driver's CUDA version is (?P<driver_cuda>\d+\.\d+) which is older than the PTX compiler version \(?(?P<cuda>\d+\.\d+)",
            r"CUDA initialization failure with (?P<refused>error:? 35)\b",
            r"Driver does not support the required nvenc API version",
            r"minimum required Nvidia driver for nvenc is (?P<needed>\d{3}(?:\.\d{1,3})?)",
            r"no GPU found in runtime.{0,1100}?CUDA version: (?:11\.\d.{0,120}?driver version: (?:3\d\d|4[0-4]\d)\.|12\.\d.{0,120}?driver version: (?:[34]\d\d|5[01]\d)\.)",
            r"has constraint __cuda >=(?P<cuda>\d+\.\d+) conflicting with __cuda-(?P<driver_cuda>\d+\.\d+)-",
            r"minimum required CUDA driver version is (?P<cuda>\d+\.\d+), but the installed CUDA driver version is (?P<driver_cuda>[1-9]\d*\.\d+)",
            r"your nvidia driver is too old or missing",
        ),
        examples=(
            "The NVIDIA driver's CUDA version is 11.2 which is older than the PTX compiler version 12.3.107",
            "The currently installed NVIDIA graphics driver is unsupported or has known issues.\nInstalled driver: 535.18\nThe unsupported driver range: [0.0, 535.129)",
            "[TRT] [W] CUDA initialization failure with error: 35",
            "[av1_nvenc @ 0x1] The minimum required Nvidia driver for nvenc is 570.0 or newer",
            "Compiled with WITH_GPU, but no GPU found in runtime. Paddle With CUDA: True CUDA version: 11.2.142 cuDNN version: 8.1.1 Nvidia driver version: 440.33.01",
            "package pytorch-2.1.0 has constraint __cuda >=12.1 conflicting with __cuda-11.4-0",
            "The minimum required CUDA driver version is 12.0, but the installed CUDA driver version is 11.4.",
        ),
        not_examples=(
            "The currently installed NVIDIA graphics driver is unsupported or has known issues. The unsupported driver range: [553.0, 560.35)",
            "the nvenc API version is 13.0",
            "any Nvidia driver for nvenc will do",
        ),
    ),
    Cause(
        "driver-missing",
        title="{who}: there is no NVIDIA driver",
        plain="No NVIDIA driver was found",
        means="The GPU is on the bus, but no kernel module and no driver libraries are installed.",
        text="Install the distribution's driver package and reboot",
        proven_by="The PCI bus shows an NVIDIA GPU, and there is no libcuda and no module on disk",
        not_when="driver-not-loaded: a part of a driver is installed; in a container and in WSL the driver is elsewhere",
        source='NVIDIA, "Driver Installation Guide"',
        lacks="gpu",
        explains=("container-hook-failed",),
        impossible=(in_wsl,),
        by_check=True,
        alike={
            alike.ON_THE_BUS: (
                "no-nvidia-gpu",
                "container-no-gpu",
            )
        },
    ),
    Cause(
        "hybrid-gpu-off",
        title="The NVIDIA GPU is switched off by {tool}",
        plain="The NVIDIA GPU is switched off by the hybrid graphics setting",
        means="supergfxctl, prime-select, envycontrol and others remove the GPU from the bus "
        "or blacklist its module.",
        text="Switch the NVIDIA GPU on and reboot",
        proven_by="The tool's state or its configuration says so",
        not_when="driver-missing: no tool switched the GPU off",
        source="the tools' own documentation",
        where=(lambda context: not answering(context),),
        commands=_switch_on,
        needs_root=True,
        needs_reboot=True,
        says=(
            says(r"supergfxctl (?:-g|--get)\W{0,4}(?P<mode>Integrated|Vfio)", tool="supergfxctl"),
            says(
                r"envycontrol (?:-q|--query)\W{0,4}(?:Current graphics mode(?: is)?: )?(?P<mode>integrated)",
                tool="envycontrol",
            ),
            says(r"prime-select query\W{0,4}(?P<mode>intel|amd)\b", tool="prime-select"),
            says(r"system76-power graphics\W{0,4}(?P<mode>integrated)", tool="system76-power"),
            says(r"Current GPU mode ?: (?P<mode>integrated|intel)", tool="optimus-manager"),
            says(
                r"envycontrol (?:-s|--switch) (?P<mode>integrated)(?!.{0,400}?(?:-s|--switch) (?:hybrid|nvidia))",
                tool="envycontrol",
            ),
            says(
                r"envycontrol\b.{0,200}?\b(?P<mode>integrated) (?:graphics )?mode(?!\w).{0,400}?(?:not found|missing|not (?:listed|detected|shown)|disappear|can ?no?t see|does not see)",
                tool="envycontrol",
            ),
            says(
                r"supergfxctl (?:-m|--mode) (?P<mode>Integrated|Vfio)(?!.{0,400}?(?:-m|--mode) (?:Hybrid|AsusMuxDgpu))",
                tool="supergfxctl",
            ),
            says(
                r"sudo prime-select (?P<mode>intel|amd)\b(?!.{0,400}?prime-select (?:nvidia|on-demand))",
                tool="prime-select",
            ),
            says(r"dgpu_disable\W{1,6}1\b", tool="asus-wmi"),
            says(r"bbswitch.{0,80}? [0-9a-f:.]{7,12} (?P<mode>OFF)\b", tool="bbswitch"),
            says(
                r"(?<![\w/-])blacklist nvidia(?:[-_]drm|[-_]modeset)?(?= |$)",
                tool="modprobe",
                unless=r"nouveau",
            ),
            says(
                r"(?<![\w/-])install nvidia(?:[-_](?:drm|modeset))? /bin/(?:false|true)",
                tool="modprobe",
                unless=r"nouveau",
            ),
            says("alias nvidia off", tool="modprobe"),
            says(
                r"supergfxctl\b[^.\n]{0,12} (?:is|was|says?|shows?|set) (?:in |to )?(?P<mode>Integrated)\b",
                tool="supergfxctl",
                unless=IF_ONLY,
            ),
        ),
        examples=(
            "$ supergfxctl -g\nIntegrated",
            "$ prime-select query\namd",
            "$ system76-power graphics\nintegrated",
            "Current GPU mode: integrated",
            "$ cat /sys/devices/platform/asus-nb-wmi/dgpu_disable\n1",
            "$ cat /proc/acpi/bbswitch\n0000:01:00.0 OFF",
            "$ cat /etc/modprobe.d/gpu.conf\ninstall nvidia /bin/false",
            "/etc/modprobe.d/a.conf: blacklist nvidia-drm",
            "$ sudo envycontrol -s integrated\n$ sudo reboot",
            "With envycontrol I went to integrated mode and now the card is missing",
            "$ supergfxctl -m Integrated",
            "$ sudo prime-select intel",
            "supergfxctl is in Integrated mode",
        ),
        not_examples=(
            "sudo envycontrol -s integrated, and later sudo envycontrol -s hybrid",
            "envycontrol can go from integrated to hybrid mode",
            "supergfxctl -m Integrated and back by supergfxctl -m Hybrid",
            "sudo prime-select intel; afterwards sudo prime-select nvidia",
        ),
    ),
)
