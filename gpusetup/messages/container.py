"""Messages of docker, containerd, podman, the NVIDIA container toolkit, Kubernetes, WSL.

Sources: the error texts of moby, containerd, podman, libnvidia-container, nvidia-container-toolkit,
kube-scheduler, kubelet and the NVIDIA device plugin; the entry script of NVIDIA's images, kubectl.
"""

from __future__ import annotations

from gpusetup.messages.row import row, rows
from gpusetup.messages.spoken import in_any_order

INSIDE = r"\b(?:docker |the |running |my )*containers?\b"
LOSES = (
    r"\b(?:los(?:es?|t|ing) (?:access to |its |the |their |connection to )*(?:NVIDIA )?(?:GPUs?|drivers?|nvidia-smi|cuda)"
    r"|(?:GPUs?|nvidia-smi|drivers?|cuda) (?:\S{1,12} ){0,4}?(?:breaks?|broke|disappear(?:s|ed)|vanish(?:es|ed)|stop(?:s|ped)? (?:working|responding)|is lost|gets lost|becomes? (?:un\w+|inaccessible)|no longer (?:work|found|visible|available|detected)\w*))\b"
)
LATER = r"\b(?:at some point|after (?:a |some |several |few |running |about |\d{1,3} ?|one |two )*(?:while|time|minutes?|hours?|days?|weeks?|h)\b|(?:one|a|the next) day (?:after|later)|randomly|sporadically|daemon-reload|over time|eventually)"
NEVER_HAD = r"\b(?:after|since) (?:\S{1,12} ){0,3}?(?:updat|upgrad|reboot|suspend|sleep|hibernat)\w*|\bXid\b|fallen off|segfault|out of memory"
"""A container that had its GPU and loses it while it runs, in a person's words."""


STEP_FAILED = (
    r"(?:failed to solve: process|The command '/bin/sh -c .{1,400}?returned a non-zero code"
    r'|process "/bin/sh -c .{1,400}?did not complete successfully)'
)
"""How a step of an image's build ends: BuildKit's words, and docker's former ones."""

IF_ONLY = r"\b(?:if|when|in case|whether|make sure|until|unless)\b"

CLUSTERS = (
    row(
        "k8s-gpu-not-allocatable",
        "nvidia.com/gpu",
        r"\bnvidia\.com/gpu\b\W{0,3} (?:resources? )?(?:is ?|are ?|was ?)?(?:not|n't|never) (?:\w+ )?(?:visible|available|listed|shown|found|there|advertised|present|detected|exposed|registered)\b"
        r"|(?:无法|不能|没有|未能?|找不到|看不到|缺少)[^\n。，,]{0,12}nvidia\.com/gpu",
        unless=r"\b(?:if|when|in case|whether|make sure|until|unless)\b|如果|若",
    ),
)

ARTICLE = r"(?:an? |the |my |free )?(?:hosted )?"


ELSEWHERE = (
    r"\b(?:works?|worked|working|fine|well|runs) (?:on|in|with) (?:an? |the |my )?LENT|LENT\b[^.\n]{0,50}\b(?:works|worked|is fine|runs fine|no problem|same code)"
    r"|LENT`?,? (?:and|or|/) `?OTHER|OTHER`?,? (?:and|or|/) `?LENT|\b(?:not|neither|unlike|like|also)(?: \w+)? (?:on|in|with) (?:an? |the )?LENT|LENT I also|usage limits in LENT"
)


def elsewhere(name: str, other: str) -> str:
    """A pattern of what is said of a lender's notebooks that a failure is not in, or not only."""
    return ELSEWHERE.replace("LENT", f"(?:google )?{name}").replace("OTHER", other)


ROWS = (
    *rows(
        "container-no-gpu",
        {
            "nvidia driver was not detected": "",
            "start this container with gpu support": "",
        },
    ),
    *rows(
        "container-no-gpu",
        {
            "nvidia-smi": r'(?:exec: \\?"nvidia-smi\\?":? (?:executable file )?|"nvidia-smi\\?": executable file )not found',
            "nvidia-smi not found": r"\bnvidia-smi not found\b.{0,600}?\b(?:outside (?:of )?(?:the |my |this )?(?:docker|containers?)|on (?:the|my) host|in (?:other|another) (?:docker )?containers?)\b[^.\n]{0,60}?\bnvidia-smi\b (?:\w+ ){0,2}?(?:runs?|works?)\b",
        },
        lacks="nvidia-smi",
    ),
    row(
        "container-no-gpu",
        "nvidia-smi",
        r"executable file .?nvidia-smi.? not found",
        lacks="nvidia-smi",
    ),
    *rows(
        "container-no-gpu",
        {
            "/bin/sh -c": rf"(?:No CUDA GPUs are available|Found no NVIDIA driver|Torch is not able to use GPU|CUDA driver initialization failed|no CUDA-capable device is detected).{{0,900}}?{STEP_FAILED}",
            "cuda.is_available()": rf"torch\.cuda\.is_available\(\).{{0,700}}?AssertionError.{{0,500}}?{STEP_FAILED}",
        },
        step="build",
    ),
    *rows(
        "container-no-gpu",
        {
            "not passed": r"\bGPUs? (?:is |are |was |were )?not passed (?:through )?(?:in)?to (?:the |my |any )?(?:docker )?containers?\b",
            "reservation": r"\b(?:has|have|with|is|are) (?:no|missing|lacks?|without)(?: the| an?)? (?:NVIDIA |GPU )?(?:GPU )?device reservations?\b",
        },
        unless=r"\b(?:if|when|unless)\b[^.\n]{0,40}(?:passed|reservation)",
    ),
    row("gpu-image", "-workspace/", r"(?<![\w/])/(?:vllm|sgl)-workspace/"),
    *rows(
        "container-nvml-lost",
        {
            "nvml: unknown error": r"(?:initialize )?NVML: Unknown Error",
            "nvml unknown error": r"initiali[sz]e NVML unknown error",
        },
    ),
    row(
        "container-nvml-lost",
        "container",
        in_any_order(LOSES, INSIDE, LATER, within=160),
        unless=NEVER_HAD,
        said="in words",
    ),
    *rows(
        "container-toolkit-missing",
        {
            "could not select device driver": r"could not select device driver \W{0,4}(?P<runtime>(?!cdi)\w*)\W{0,4} ?with capabilities",
            "runtime": r"unknown(?: or invalid)? runtime (?:name|specified):? \W?(?P<runtime>nvidia)",
            "nvidia-container": r"(?P<runtime>nvidia-container-(?:runtime|cli|toolkit)[\w-]*)\W{1,5}(?:executable file not found|no such file|not found)",
            "no runtime for": r"no runtime for \W{0,2}(?P<runtime>nvidia)\W{0,2} is configured",
            "command not found: nvidia-": r"Command not found: (?P<runtime>nvidia-container-(?:cli|runtime|toolkit))",
            "nvidia-docker": r"nvidia-docker: (?:command )?not found",
        },
    ),
    row(
        "program-failed",
        "executable file not found in $path",
        r"exec: \W{0,3}(?P<lacks>(?!nvidia-)[\w./-]{1,60})\W{0,3}: executable file not found in \$PATH",
        says="The image has no such program as its command asks for",
        way="Name the release of the image that has it, or the command that it has",
        stage="start",
    ),
    row(
        "container-toolkit-missing",
        "default runtime",
        r"\b(?:docker|container)s?\b[^.\n]{0,20}? (?:can ?not|can't|could not|couldn't|does(?: not|n't)|do(?: not|n't)|will not|won't|is not|isn't|not|unable to|fails? to) (?:\w+ ){0,2}?(?:us|see|find|access|detect|recogni[sz])\w{0,5} (?:the |my |any |a )?(?:NVIDIA )?GPUs?\b.{0,900}?\bRuntimes: (?:(?!nvidia)[\w.-]{2,40} ){1,6}Default Runtime: (?!nvidia)\w",
        unless="nvidia.com/gpu=|cdi: ",
        runtime="nvidia",
    ),
    row(
        "container-toolkit-missing",
        "nvidia runtime",
        r"\b(?:docker|podman|containerd|engine)\b[^.\n]{0,30}? not (?:use|using|know|find|finding|have|see|list)\w* (?:the |an? |of the )?nvidia runtime|\b(?:no|missing|lacks?|without) (?:the |an? )?nvidia runtime\b"
        r"|nvidia runtime (?:is |was )?(?:not (?:installed|configured|found|registered|available|listed|there)|missing)",
        unless=IF_ONLY,
        runtime="nvidia",
    ),
    *rows(
        "container-toolkit-missing",
        {
            "did you configure the nvidia container toolkit": "",
            "could not load nvml library": "",
            "device discovery strategy": r"invalid device discovery strategy",
        },
        runtime="nvidia",
    ),
    *rows(
        "container-cdi-unresolvable",
        {
            "cdi device": r"unresolvable CDI devices? [\[\"']?(?P<device>[\w./=:-]+)",
            "cdi host device": r"failed to stat CDI host device \W{0,3}(?P<device>/dev/[\w./-]+)",
            "device driver": r"could not select device driver \W{0,4}cdi\b",
            "cdi": r"(?:failed to|could not) (?:inject|resolve) CDI devices?",
            "nvidia.com/gpu=": r"stat (?P<device>nvidia\.com/gpu=\w+): no such file",
            "gpu vendor from cdi": r"failed to discover GPU vendor from CDI",
        },
    ),
    row(
        "container-cdi-unresolvable",
        "nvidia.com/gpu=",
        r"custom device \W{0,3}(?P<device>nvidia\.com/gpu=\w+)\W{0,4}: no such file",
    ),
    *rows(
        "container-hook-failed",
        {
            "nvidia-container-cli": r"nvidia-container-cli(?:\.real)?: (?P<problem>[a-z -]{3,30} error: (?![^\\\"']{0,300}no adapters were found)[^\\\"']{3,300})",
            "container runtime hook directly": r"(?P<problem>invoking the NVIDIA Container Runtime Hook directly [^\\\n]{0,60}is not supported)",
            "error executing hook": r"(?P<problem>error executing hook `?\S{0,60}nvidia-(?:container-(?:toolkit|runtime-hook)|cdi-hook|ctk)`? \(exit code: \d{1,3}\))",
            "did not terminate s": r"(?P<problem>nvidia-container-runtime did not terminate succ?ess?fully: exit status \d{1,3})",
        },
    ),
    *rows(
        "k8s-gpu-not-allocatable",
        {
            "waiting for nvidia-smi": "",
            "insufficient nvidia.com/gpu": "",
            "insufficient": r"\d+ Insufficient nvidia\.com/(?P<asked>[\w.-]+)",
            "nvidia.com/gpu": r"Allocate failed due to .{0,80}nvidia\.com/gpu",
            "no devices found. waiting indefinitely": "",
            "nvidia": r"(?P<pod>nvidia-(?:device-plugin|container-toolkit|driver|operator-validator)[\w-]*) \d{1,2}/\d{1,2} (?:CrashLoopBackOff|Error|ImagePullBackOff|ErrImagePull|Init:\S{1,24}|ContainerCreating|Pending)\b",
        },
    ),
    row(
        "no-nvidia-driver",
        "load library failed",
        r"load library failed: (?P<library>libnvidia-ml\.so[.\d]*)",
        place="host",
    ),
    *rows(
        "driver-not-loaded",
        {
            "nvml error: driver not loaded": "",
            "nvidia-driver-": r"\b(?:nvidia-driver-daemonset|nvidia-driver-ctr)\b.{0,300}?couldn't communicate with the NVIDIA driver",
            "adding custom device": r'adding custom device "/dev/nvidia(?:\d+|ctl)": no such file',
        },
        place="host",
    ),
    row("uvm-missing", "adding custom device", r'adding custom device "/dev/nvidia-uvm[\w-]*": no'),
    row(
        "container-driver-capability-missing",
        "nvidia_driver_capabilities",
        r"NVIDIA_DRIVER_CAPABILITIES\W{1,4}(?P<capability>(?!all|\S{0,30}compute)(?:utility|video|graphics|display)[\w,]{0,40})",
    ),
    row("k8s-gpu-not-allocatable", "nvidia.com/gpu", r"untolerated taint \W{0,2}nvidia\.com/gpu"),
    row("k8s-gpu-not-allocatable", "nvidia.com/gpu", r"exceeded quota.{0,200}nvidia\.com/gpu"),
    *(
        row("k8s-gpu-not-allocatable", "pending", pattern, unless=r"image pull|ImagePull|volume")
        for pattern in (
            r"\bnvidia\.com/gpu\b.{0,400}?\b(?:stays?|stuck|remains?|always) (?:in (?:the |a )?)?[`'\"]?pending\b",
            r"\bGPU.{0,160}?\bpods?\b.{0,200}?\b(?:stays?|stuck|remains?|always) (?:in (?:the |a )?)?[`'\"]?pending\b",
        )
    ),
    row(
        "k8s-gpu-not-allocatable",
        "nvidia.com/gpu",
        r"\bnvidia\.com/gpu\"?: \"?0\b(?![.\d])",
    ),
    row("wsl-driver", "gpu access blocked", why="blocked"),
    row("wsl-driver", "wsl environment detected but no adapters", why="adapters"),
    row(
        "wsl-driver",
        "/usr/lib/wsl/lib/nvidia-smi",
        r"/usr/lib/wsl/lib/nvidia-smi.{0,40}?Segmentation fault|Segmentation fault.{0,40}?/usr/lib/wsl/lib/nvidia-smi",
        why="crash",
    ),
    row("wsl-driver", "driver version: 0", r"Driver Version: 0(?![\d.])", why="version-zero"),
    *rows(
        "libcuda-stub",
        {
            "stub": r"CUDA_ERROR_STUB_LIBRARY|cudaErrorStubLibrary|CUDA driver is a stub library",
            "always run with libnvidia-ml": r"You should always run with libnvidia-ml\.so",
            "/stubs": r"libcuda\.so[.\d]* (?:=>|paths:) /\S{0,160}/stubs/libcuda",
        },
    ),
    *rows(
        "hosted-notebook",
        {
            "google/colab": "",
            "condacolab": r"\bcondacolab\b",
            "google.colab": "",
            "/content/": r"(?<![\w./-])/content/(?!images?/|media/)\w",
        },
        service="Google Colab",
    ),
    row(
        "hosted-notebook",
        "colab",
        rf"\b(?:(?:on|in|using|my|this|from) {ARTICLE}|(?:environment|platform|system|os|running on)"
        r"\W{1,6})(?:Google )?Colab(?:oratory)?\b|\bColab(?:oratory)?(?:'s)? (?:\((?=[TLAV]))?"
        r"(?:T4|L4|[AV]100|TPU|GPUs?|notebooks?|runtime|pro|instance|session|page|free)\b"
        r"|(?:运行环境|环境|在) ?(?:是|为|：|:)? ?(?:Google )?Colab",
        unless=elsewhere("colab(?:oratory)?", "kaggle"),
        service="Google Colab",
    ),
    row(
        "hosted-notebook",
        "kaggle",
        rf"\b(?:(?:on|in|using|my|this) {ARTICLE}|(?:environment|platform|system|os|running on)"
        r"\W{1,6})Kaggle\b(?! ?(?:data|competition|api\b|cli\b|[./_-]))|\bKaggle(?:'?s)? (?:\((?=[TP]))?"
        r"(?:T4|P100|TPU|GPUs?|notebooks?|kernel|session|runtime|free)\b",
        unless=elsewhere("kaggle", "colab"),
        service="Kaggle",
    ),
    *rows(
        "gpu-not-chosen",
        {
            "gpu backend": r"[Cc]annot (?:currently )?connect to (?:a )?GPU backend",
            "due to usage limits in colab": "",
        },
        service="Google Colab",
    ),
    row(
        "hosted-notebook",
        "/kaggle/",
        r"(?<![\w.])/kaggle/(?:working|input|tmp)\b",
        service="Kaggle",
    ),
    row(
        "hosted-notebook",
        "sagemaker",
        r"/home/ec2-user/SageMaker|/home/sagemaker-user",
        service="SageMaker",
    ),
    *CLUSTERS,
)
