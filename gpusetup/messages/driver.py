"""Messages of NVML, of nvidia-smi, and of who cannot find the driver.

Sources: nvidia-smi 384 to 610, nvmlErrorString, torch's check of the driver, supergfxctl,
envycontrol, prime-select, nv-fabricmanager.
"""

from __future__ import annotations

from gpusetup.messages.kernel_reports import KERNEL
from gpusetup.messages.row import row, rows

DESKTOP_PROFILE = (
    r"(?<![\w-])(?P<profile>(?:A(?:2|10|16|30|40|100\w{0,2})|L(?:2|4|20|40S?)|[TPM]\d{1,2}|P100\w?|V100\w{0,3}"
    r"|(?:RTX ?)?(?:PRO ?)?(?:A?[56]000(?:-?Ada|A)?|[68]000\w?)|B\d{2,3}\w?)-\d{1,2}[AB])(?![\w-])"
)
"""A vGPU profile for applications (A) or desktops (B) by its name: A16-8A, RTX6000-8A, T4-2B."""

DRIVER = (
    *rows(
        "nvml-mismatch",
        {
            "library version mismatch": r"Driver/library version mismatch(?:.{0,3}NVML library version: (?P<library>\d[\d.]+\d))?",
            "nvml/rm version mismatch": "",
        },
    ),
    *rows(
        "no-nvidia-driver",
        {
            "found no nvidia driver": "",
            "libcuda.so": r"(?:could not load dynamic library '|couldn't open CUDA library |cannot load |unable to load |(?:failed to|could not|cannot|can't|unable to) dlopen (?:library )?)(?P<library>libcuda\.so[.\d]*)",
            "nvcuda.dll": r"(?:could not|cannot|unable to|failed to) (?:load|find|locate).{0,30}(?P<library>nvcuda\.dll)",
            "libnvidia-ml.so": r"(?P<library>libnvidia-ml\.so(?:\.1)?): cannot open shared object",
        },
    ),
    row(
        "driver-check-failed",
        "in _check_driver",
        r"in _check_driver\b(?!.{0,400}?(?:Error|too old|Found no NVIDIA|not compiled))",
    ),
    row(
        "no-nvidia-driver",
        "find libnvidia-ml",
        r"couldn.?t find libnvidia-ml\.so",
        library="libnvidia-ml.so",
    ),
    *rows(
        "no-nvidia-driver",
        {
            "nvml shared library not found": "",
            "nvml doesn't exist on this system": "",
            "error_library_not_found": r"NVML.{0,24}ERROR_LIBRARY_NOT_FOUND",
        },
        library="libnvidia-ml",
    ),
    row(
        "no-nvidia-driver",
        "libcuda.so",
        r"(?<![\w.])(?P<library>libcuda\.so(?:\.1)?): (?!undefined|version|file too short)(?=\S)",
        unless=r"dlerror|Could not load library libcudnn",
    ),
    row(
        "libcuda-unlinked",
        "error: libcuda.so",
        r"Could not load library (?P<asker>libcudnn\w+\.so(?:\.\d+)*)\W{1,2} ?Error: (?P<library>libcuda\.so): cannot open",
    ),
    *rows(
        "smi-not-found",
        {
            "command not found: nvidia-smi": r"\b(?:ba|z|da|k|fi|a)?sh: (?:line )?(?:\d+: )?command not found: nvidia-smi",
            "not found": r"nvidia-smi.{0,3}: (?:command )?not found|Command 'nvidia-smi' not found",
            "nvidia-smi": r"nvidia-smi\W{1,2} (?:is not recognized|: The term|\u4e0d\u662f\u5185\u90e8|wurde nicht|n'est pas reconnu)",
            "no such file or directory: ": r"no such file or directory: '?\S{0,60}nvidia-smi",
        },
    ),
    *rows(
        "driver-not-loaded",
        {
            "communicate with the nvidia driver": "",
            "driver not loaded": r"(?:NVML|nvml error|NVMLError\w*): ?driver not loaded",
            "driver is not loaded": r"NVIDIA (?:kernel )?driver is not loaded",
            "drivernotloaded": "",
            "kernel driver does not appear to be running": r"kernel driver does not appear to be running on this host \((?![0-9a-f]{12}\))",
        },
    ),
    row("no-devices-found", "no devices were found"),
    *rows(
        "driver-too-old",
        {
            "is too old": r"driver on your system is (?P<refused>too old)(?! \(found version \d{7})(?: \(found version (?P<found>\d{4,6})\))?",
            "insufficient for": r"CUDA driver version is (?P<refused>insufficient for CUDA runtime version)",
            "cudaerrorinsufficientdriver": r"(?P<refused>cudaErrorInsufficientDriver)",
            "undefined symbol: cu": r"undefined symbol: (?P<symbol>cu(?:GreenCtx|DevSm|DeviceGetDevResource|TensorMap|Multicast|MemcpyBatch|LaunchKernelEx|KernelGet|Library|StreamGetGreenCtx|StreamBatchMemOp|CtxFromGreenCtx|Coredump|Logs)\w{0,40})",
            "graphics driver is unsupported": r"installed NVIDIA graphics driver is unsupported.{0,200}?unsupported driver range: \[0\.0,",
            "older than the ptx compiler": r"driver's CUDA version is (?P<driver_cuda>\d+\.\d+) which is older than the PTX compiler version \(?(?P<cuda>\d+\.\d+)",
        },
    ),
    *rows(
        "image-needs-newer-driver",
        {
            "unsatisfied condition": r"unsatisfied condition: (?:[\w =,]{0,40}?)cuda ?>= ?(?P<cuda>\d+\.\d+)",
            "unsatisfied condition: driver": r"unsatisfied condition: driver ?>?= ?(?P<needs_driver>\d{3}[.\d]*)",
            "unsupported cuda version": r"unsupported CUDA version: driver (?P<driver_cuda>[\d.]+) < image (?P<cuda>[\d.]+)",
            "was built for nvidia driver release": (
                r"""(?x)
        built\ for\ NVIDIA\ Driver\ Release
        \ (?P<needs_driver>[\d.]+)\ or\ later,\ but\s+version
        \ (?P<driver>[\d.]+)\ was\ detected\ and\ compatibility\ mode\ is
        \ (?:UNAVAILABLE|FAILED)
        """
            ),
        },
    ),
    row(
        "container-no-gpu",
        "kernel driver does not appear to be running",
        r"kernel driver does not appear to be running on this host \([0-9a-f]{12}\)",
    ),
    *rows(
        "uvm-missing",
        {
            "uvm": r"could not load (?:the )?UVM kernel module",
            "/dev/nvidia-uvm": r"/dev/nvidia-uvm'?\W{1,3}(?:no such file|not found|does not exist|is missing)",
        },
    ),
    row(
        "uvm-missing",
        "uvm",
        r"(?:Module '?nvidia[-_]uvm'? not found|could not insert '?nvidia[-_]uvm)",
    ),
    row(
        "device-permission",
        "insufficient permissions",
        r"(?<! C )(?<! G )(?<!C\+G )(?:NVML: |nvml error: )?Insufficient Permissions",
        unless=r"(?:utilization|performance) counter|accounting mode|persistence mode|fabric (?:status|state)",
    ),
    *rows(
        "device-permission",
        {
            "nvmlerror_nopermission": "",
            "/dev/nv": r"(?:open(?:ing)?|access)? ?'?(?P<path>/dev/nv[\w/-]+)'?\W{1,3}(?:permission denied|operation not permitted|eacces|eperm)",
            "permission denied": r"permission denied:? '?(?P<path>/dev/nv[\w/-]+)",
            "nvrmmeminit": r"NvRmMemInit\w* failed with Permission denied",
        },
    ),
    row(
        "device-permission",
        "selinux",
        r"\bSELinux\b.{0,400}?--security-opt[ =]label[=:]disable.{0,300}?\bGPU|\bGPU.{0,300}?\bSELinux\b.{0,300}?--security-opt[ =]label[=:]disable",
        unless=r"(?:did not|didn't|doesn't|does not) (?:help|work)",
    ),
    row("device-permission", "/dev/nv", r"avc: +denied .{0,200}(?P<path>nvidia\w*)"),
    row(
        "hybrid-gpu-off",
        "supergfxctl",
        r"supergfxctl (?:-g|--get)\W{0,4}(?P<mode>Integrated|Vfio)",
        tool="supergfxctl",
    ),
    row(
        "hybrid-gpu-off",
        "envycontrol",
        r"envycontrol (?:-q|--query)\W{0,4}(?:Current graphics mode(?: is)?: )?(?P<mode>integrated)",
        tool="envycontrol",
    ),
    row(
        "hybrid-gpu-off",
        "prime-select",
        r"prime-select query\W{0,4}(?P<mode>intel|amd)\b",
        tool="prime-select",
    ),
    row(
        "hybrid-gpu-off",
        "system76-power",
        r"system76-power graphics\W{0,4}(?P<mode>integrated)",
        tool="system76-power",
    ),
    row(
        "hybrid-gpu-off",
        "current gpu mode",
        r"Current GPU mode ?: (?P<mode>integrated|intel)",
        tool="optimus-manager",
    ),
    row(
        "hybrid-gpu-off",
        "envycontrol",
        r"envycontrol (?:-s|--switch) (?P<mode>integrated)(?!.{0,400}?(?:-s|--switch) (?:hybrid|nvidia))",
        tool="envycontrol",
    ),
    row(
        "hybrid-gpu-off",
        "envycontrol",
        r"envycontrol\b.{0,200}?\b(?P<mode>integrated) (?:graphics )?mode(?!\w).{0,400}?(?:not found|missing|not (?:listed|detected|shown)|disappear|can ?no?t see|does not see)",
        tool="envycontrol",
    ),
    row(
        "hybrid-gpu-off",
        "supergfxctl",
        r"supergfxctl (?:-m|--mode) (?P<mode>Integrated|Vfio)(?!.{0,400}?(?:-m|--mode) (?:Hybrid|AsusMuxDgpu))",
        tool="supergfxctl",
    ),
    row(
        "hybrid-gpu-off",
        "prime-select",
        r"sudo prime-select (?P<mode>intel|amd)\b(?!.{0,400}?prime-select (?:nvidia|on-demand))",
        tool="prime-select",
    ),
    row("hybrid-gpu-off", "dgpu_disable", r"dgpu_disable\W{1,6}1\b", tool="asus-wmi"),
    row("hybrid-gpu-off", "bbswitch", r"[0-9a-f:.]{7,12} (?P<mode>OFF)\b", tool="bbswitch"),
    *rows(
        "hybrid-gpu-off",
        {
            "t nvidia": r"(?<![\w/-])blacklist nvidia(?:[-_]drm|[-_]modeset)?(?= |$)",
            "install nvidia": r"(?<![\w/-])install nvidia(?:[-_](?:drm|modeset))? /bin/(?:false|true)",
        },
        tool="modprobe",
        unless=r"nouveau",
    ),
    row("hybrid-gpu-off", "alias nvidia off", tool="modprobe"),
    *rows(
        "vgpu-unlicensed",
        {
            "unlicensed": r"(?:License Status\s*:? ?|vGPU is |currently )Unlicensed(?: \((?P<state>\w+)\))?",
            "license": r"Failed to acquire licen[sc]e from \S|nvidia-gridd.{0,60}(?:Failed to acquire|License .{0,40}(?:denied|expired)|error.{0,20}licen)",
            "valid grid licen": r"valid Grid licen[sc]e",
        },
    ),
    row(
        "pcie-degraded",
        "lnksta:",
        r"Width x(?P<width_max>16)\b.{0,150}?LnkSta:\s{0,4}Speed [\d.]+GT/s(?: \(\w+\))?, Width x(?P<width>\d{1,2}) \(downgraded\)",
    ),
    row(
        "pcie-slow",
        "(downgraded)",
        r"Speed (?P<best>[\d.]+GT/s)[^()]{0,200}?LnkSta:\s{0,4}Speed (?P<speed>[\d.]+GT/s) \(downgraded\), Width x\d{1,2} \(ok\)",
    ),
    *rows(
        "vgpu-no-compute",
        {
            "device context 801": "",
            "operation not supported": rf"{DESKTOP_PROFILE}.{{0,2500}}?CUDA error(?: 801)?[^:]{{0,60}}: operation not supported",
        },
        code="801",
    ),
    row(
        "vgpu-no-compute",
        "operation not supported",
        rf"CUDA error(?: 801)?[^:]{{0,60}}: operation not supported.{{0,2500}}?{DESKTOP_PROFILE}",
        code="801",
    ),
    *rows(
        "system-not-ready-fabric-manager",
        {
            "fabric": r"(?:Failed to start|nvidia-fabricmanager\.service.{0,60}(?:failed|inactive)|fabric ?manager never reported|Fabric Manager .{0,60}(?:failed|not running|is not))",
            "in progress": r"\bFabric State ?: In Progress",
            "fabric manager": r"fabric manager .{0,40}version (?P<version>\d[\d.]+) (?:don.?t|doesn.?t|does not|do not) match with driver version (?P<driver>\d[\d.]+)",
        },
    ),
    row("no-nvswitch", "nv_warn_nothing_to_do"),
    row(
        "mig-misconfigured",
        "device < num_gpus",
        r"device >= 0 && device < num_gpus.{0,20}INTERNAL ASSERT",
        shown="by MIG alone",
    ),
    row(
        "mig-misconfigured",
        ("only one", "only 1", "just one", "only a single"),
        r"\b(?:shows?|sees?|finds?|returns?|lists?|detects?|counts?|uses?)\b[^.\n]{0,30}?\b(?:only |just )(?:one|1|a single) (?:gpus?|devices?|instances?)\b.{0,160}?\bMIG\b|\bMIG\b.{0,160}?\b(?:shows?|sees?|finds?|returns?|lists?|detects?|counts?|uses?)\b[^.\n]{0,30}?\b(?:only |just )(?:one|1|a single) (?:gpus?|devices?|instances?)\b",
    ),
    *rows(
        "smi-banner-misread",
        {
            "nvidia-smi": r"(?=[cfu])(?:could not|cannot|can't|failed to|unable to) (?:\w+ ){0,3}(?:parse|determine|detect|find|read|extract|get) .{0,30}CUDA version.{0,60}nvidia-smi",
            "parse": r"(?:could not|cannot|failed to|unable to) parse .{0,20}nvidia-smi",
        },
    ),
)

STATE = (
    *rows(
        "driver-not-loaded",
        {
            "the nvidia driver": r"\bnvidia-smi\b.{0,80}?\b(?:could not|couldn['\u2019]?t|cannot|can['\u2019]?t|unable to|not able to) (?:connect|talk|speak) (?:to|with) the NVIDIA driver",
            "nvidia-driver-": r"nvidia-driver-\d{3}[\w-]{0,14}\W{1,3}(?:won['\u2019]?t|will not|does(?: not|n['\u2019]?t)|fails to|cannot|can['\u2019]?t) load",
        },
    ),
    row(
        "secure-boot-rejected",
        "nvidia module",
        r"\bsecure ?boot\b.{0,300}?\bsigned NVIDIA module (?:is )?(?:fail(?:s|ed|ing)|refus\w{1,4}) to load",
    ),
    row(
        "power-thermal-throttle",
        ": active",
        r"(?P<reason>SW Power Cap|HW Slowdown|HW Thermal Slowdown|SW Thermal Slowdown|HW Power Brake Slowdown) ?: Active",
    ),
    row(
        "no-nvidia-gpu",
        "no nvidia",
        r"(?<!NVRM: )No NVIDIA (?:GPU|graphics|VGA|device)s?[\w ]{0,20}(?:detected|found|available|present)(?! by library|\?)",
    ),
)

ROWS = (*KERNEL, *DRIVER, *STATE)
