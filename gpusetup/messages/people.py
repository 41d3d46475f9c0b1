"""Patterns for what people write in their own words: what they tried, what does not work, what they
ask.

These are sentences of a natural language, not messages of a program. A sentence shows a symptom or
a fact about the person's situation; it never proves a cause by itself.
"""

from __future__ import annotations

from gpusetup.messages import contrasts, unused_gpu
from gpusetup.messages.fragments import IF_ONLY
from gpusetup.messages.row import MessageRow, row

# --- what was tried, and did not help -------------------------------------------------------------

AGAIN = r"(?:re-?install(?:ed|ing)?|(?:un)?install(?:ed)? (?:it )?(?:and (?:re)?install(?:ed)? )?(?:again|twice|several times|many times)|removed (?:it |\S{2,20} )?and (?:put|installed)|(?:remov|uninstall)\w+ and (?:re)?install\w+)"
NO_CHANGE = r"(?:no (?:change|difference|effect|luck|success|help)|same (?:error|result|problem|thing|story)|nothing (?:chang|help|work)|(?:did|does)(?: not|n'?t) (?:help|change|work|fix)|still (?:the same|fails?|broken|there)|in vain|to no avail|not? (?:solved?|fixed))"
TORCH = r"(?:py)?torch"
DRIVER = r"(?:(?:nvidia|graphics|gpu|geforce) )?drivers?"
CJK_TORCH = r"(?:py)?torch\s?(?:都|也|已经)?(?:卸(?:载)?了?(?:又|再|重新)?(?:重?装)|重(?:新)?(?:装|安装)(?:了|过)?)"
CJK_DRIVER = r"(?:显卡)?驱动(?:程序)?(?:都|也|已经)?(?:重(?:新)?(?:装|安装)|更新)(?:了|过)"
TRIED: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "torch",
        (
            rf"\b{AGAIN}\b[^.\n]{{0,24}}\b{TORCH}\b[^\n]{{0,90}}?\b{NO_CHANGE}",
            rf"\b{TORCH}\b[^.\n]{{0,24}}\b{AGAIN}\b[^\n]{{0,90}}?\b{NO_CHANGE}",
            rf"\b{TORCH}\b[^.\n]{{0,24}}\b{AGAIN}\b[^.\n]{{0,10}}\b(?:twice|several times|many times|[2-9] times)",
            CJK_TORCH,
            r"переустан(?:авливал|овил)\w{0,2} (?:и )?torch|Переставлял\w? (?:и )?(?:py)?torch",
            r"torch (?:mehrfach |schon |bereits )?neu installiert|(?:reinstal[ée]|réinstallé|reinstalei)\w{0,3} (?:py)?torch",
        ),
    ),
    (
        "driver",
        (
            rf"\b{AGAIN}\b[^.\n]{{0,24}}\b{DRIVER}\b",
            rf"\b{DRIVER}\b[^.\n]{{0,16}}\b{AGAIN}\b",
            CJK_DRIVER,
            r"переустан(?:авливал|овил)\w{0,2} (?:и )?драйвер|Treiber neu installiert",
        ),
    ),
    (
        "reboot",
        (
            r"\b(?:rebooted|restarted (?:the |my )?(?:machine|pc|computer|laptop|host|server|system|windows|node))\b[^\n]{0,60}?\b(?:no change|same|still|did(?: not|n'?t) help|twice|several times)",
            r"\b(?:after|despite|even (?:with|after)) (?:a |the |several |many |two |another )?(?:reboots?|restarts? of the (?:machine|pc|host|node))\b[^\n]{0,40}?\b(?:still|same|remains|persists)",
            r"重启(?:了|过)[^,.\n]{0,8}(?:没用|无效|一样|也不行|还是)",
        ),
    ),
    (
        "vc-runtime",
        (
            r"\b(?:VC(?:\+\+|_)? ?(?:Redist\w{0,14}|runtime)|Visual C\+\+(?: Redist\w*| runtime)?|vcredist)\b[^.\n]{0,40}?\b(?:is |are |was |already )?(?:installed|newest|latest|up to date|current|the latest)",
            r"\b(?:installed|have|updated)(?: the)? (?:newest |latest |current )?(?:VC(?:\+\+|_)? ?(?:Redist\w*|runtime)|Visual C\+\+(?: Redist\w*| runtime)?|vcredist)",
            r"(?:已(?:经)?安装|装了|安装了|安装过)[^。\n]{0,8}(?:VC|vc|Visual C\+\+)",
            r"\b(?:VC(?:\+\+|_)? ?(?:Redist\w{0,14}|runtime)|Visual C\+\+(?: Redist\w*| runtime)?|vcredist)\b[^.\n]{0,16}?\b(?:is|are) (?:already )?(?:there|present|in place|ok|fine)\b",
            r"(?:VC(?:\+\+)?|vc_?redist) ?(?:运行库|运行时|runtime)?[^,.;\n]{0,8}(?:是最新|最新的|装了|已装|装过|已经装|重装)",
        ),
    ),
    (
        "toolkit",
        (
            r"\b(?:nvidia-)?container[- ]toolkit\b[^.\n]{0,24}?\b(?:is|are|was|version)? ?(?:already |properly )?(?:installed|in place|there|configured|v?1\.\d{1,2}\.\d)",
            r"\btoolkit is v?1\.\d{1,2}(?:\.\d)?\b",
        ),
    ),
    (
        "package",
        (
            rf"\b{AGAIN}\b[^\n]{{0,100}}?\b{NO_CHANGE}",
            rf"\b(?:removed|uninstalled) (?:it|\S{{2,20}}) and (?:put|installed) (?:it )?(?:back|again)\b[^\n]{{0,80}}?\b{NO_CHANGE}",
        ),
    ),
)
"""A remedy that did not help -> patterns for how people say that they tried it."""
NOT_TRIED = rf"{IF_ONLY}|没有?装|未装|not (?:yet )?installed|n't installed|\b(?:should|will|going to|could|must|do I (?:need|have) to|try to) (?:\w+ )?(?:re)?install"

TRIED_NEEDLES = {
    "torch": (
        "install",
        "torch都",
        "torch 卸",
        "torch卸",
        "torch重",
        "torch 重",
        "переуст",
        "перест",
    ),
    "driver": ("driver", "驱动", "драйвер", "treiber"),
    "reboot": ("reboot", "restart", "重启"),
    "vc-runtime": ("vc", "visual c++"),
    "toolkit": ("toolkit",),
    "package": ("install",),
}

# --- who the machine belongs to, and what cannot be done there ------------------------------------


def _situation(
    kind: str, needles: tuple[str, ...], *patterns: str, unless: str = ""
) -> tuple[MessageRow, ...]:
    """Message rows for sentences with the same meaning about a person's situation, one for each
    pattern."""
    sentences = []
    for pattern in patterns:
        sentences.append(row(kind, pattern, *needles, unless=unless))
    return tuple(sentences)


SITUATION: tuple[MessageRow, ...] = (
    *_situation(
        "no-root-rights",
        ("root", "sudo", "admin", "user", "tenant", "guest", "管理员", "администратора"),
        r"\b(?:no|without|not? have|n'?t have|lack(?:ing)?|have no)(?: any)? (?:root|sudo|admin(?:istrator)?)(?: rights?| access| privileges?| permissions?)?\b",
        r"\bI(?: am|'m) (?:only |just )?a (?:plain |normal |mere )?(?:user|tenant|guest)(?: (?:there|here|on it))?\b",
        r"\b(?:the )?admins? (?:update|updates|maintain|install|manage|only)\b|\bnot in the sudoers\b",
        r"(?:没有|無|无) ?(?:root|sudo|管理员) ?权限|kein(?:e)? (?:root|sudo|Admin)\w*|нет (?:прав )?(?:root|sudo|администратора)|sin (?:permisos de )?(?:root|sudo)",
        unless=rf"{IF_ONLY}|\bas root\b",
    ),
    *_situation(
        "cloud-machine",
        (
            "azure",
            "aws",
            "ec2",
            "gcp",
            "cloud",
            "ovh",
            "hetzner",
            "ocean",
            "vultr",
            "linode",
            "scaleway",
            "standard_n",
            "_v",
            "large",
        ),
        r"\b(?:Azure|AWS|EC2|GCP|Google Cloud|Alibaba Cloud|OVH(?:cloud)?|Hetzner|Oracle Cloud|DigitalOcean|Vultr|Linode|Scaleway|Lambda Cloud)\b",
        r"\bStandard_N[CDV]\w+|\bN[CDV]\d{1,3}\w{0,8}_v\d\b|\b[gp][2-6](?:dn|de|d|e|en)?\.\d*x?large\b|-(?:azure|aws|gcp|gke|oracle)\b(?=[\s,)])",
    ),
    *_situation(
        "no-boot-screen",
        (
            "ssh",
            "console",
            "headless",
            "monitor",
            "screen",
            "display",
            "keyboard",
            "kvm",
            "physical access",
            "remote access",
        ),
        r"\bonly (?:have |got )?(?:ssh|remote access|a serial console)\b|\b(?:no|without a?) (?:monitor|display|screen|keyboard|console|physical access|KVM)\b|\bheadless\b",
        r"\b(?:serial console|ssh)\b[^.\n]{0,80}\b(?:already|passed|too late|after|never)\b",
        unless=IF_ONLY,
    ),
    *_situation(
        "installed-elsewhere",
        ("still ", "仍", "还是", "nach wie vor", "всё ещё"),
        r"\b(?:success\w*|(?:re)?installed|downgraded|upgraded|updated)\b[^\n]{0,60}?\b(?:yet|but|and|however)\b[^.\n]{0,40}?\bstill (?:prints?|shows?|says?|reports?|sees?|has|uses|loads|starts with)\b[^\n]{0,24}?\d\.\d",
        r"(?:装了|安装了|装好|安装成功)[^。\n]{0,30}(?:仍|还是)[^。\n]{0,12}\d\.\d",
        unless=IF_ONLY,
    ),
    *_situation(
        "ran-alone",
        (
            "alone",
            "itself",
            "its own",
            "separate",
            "direct",
            "plain ",
            "fresh ",
            "bare ",
            "单独",
            "自己跑",
            "allein",
            "отдельно",
            "単体",
        ),
        r"\b(?:alone|by itself|on its own|standalone|separately|directly|in a (?:plain|fresh|separate|bare) (?:python|script|shell|console))\b[^.\n]{0,30}\b(?:works?|worked|runs?|ran|is (?:fine|ok))\b",
        r"\b(?:works?|worked|runs?|ran)(?: (?:fine|well|perfectly|without (?:an? )?(?:error|problem)s?))? (?:alone|by itself|on its own|standalone|when (?:run|started) (?:alone|directly|separately)|in a (?:plain|fresh|separate|bare) (?:python|script|shell|console))\b",
        r"单独(?:跑|运行|执行|测试|import)?[^,.\n]{0,8}(?:没事|正常|没问题|可以|能)|自己跑(?:完全|都)?(?:正常|没事|没问题)",
        r"\ballein(?:e)? (?:läuft|funktioniert)|отдельно (?:вс[её] )?(?:работает|запускается)|単体(?:では|だと)(?:動|問題)",
        unless=IF_ONLY,
    ),
)

LANGUAGE_MODELS = (
    "qwen|llama|mistral|千问|yi-|glm|deepseek|gemma|phi-|baichuan|internlm|falcon|opt-|bloom|pythia"
)
"""Families of language models. Their models' names include the size in billions of parameters."""

IN_PROSE_AND_LOGS: tuple[MessageRow, ...] = (
    # `cri-o://1`.
    row("container-engine", r"\b(?P<engine>cri-o|containerd|docker)://\d", "://"),
    # `/var/run/crio/crio.sock`.
    row("container-engine", r"/(?:var/)?run/(?P<engine>crio|containerd|k3s)\b[\w/.-]*\.sock", ".sock"),
    # `nvcr.io/nvidia/l4t-pytorch:r32.4.2-pth1.5-py3`.
    row("vendor-image", r"\b(?P<image>(?:intelanalytics|intel/(?:intel-extension-for-pytorch|vllm)|rocm/(?:pytorch|vllm|dev)|nvcr\.io/nvidia|nvidia/pytorch|dustynv|l4t-pytorch)[\w./:@-]*)", "intelanalytics", "intel/", "rocm/", "nvcr.io", "nvidia/pytorch", "dustynv", "l4t-pytorch"),
    # `Collecting torch==2.5.1 (from xformers==0.0.28.post3->-r requirements.txt`.
    row("pin-pulls-torch", r"Collecting torch ?==(?P<torch>[\w.+]+) \(from (?P<package>[\w.-]+)(?:[=<>~!]{1,2}(?P<version>[\w.*]+))?[^()\n]{0,40}?(?:->-r (?P<file>[\w./\\:-]+))?", "collecting torch"),
    # `hook #0:: error running hook: exit status 1`.
    row("container-start-failed", r"Failed to run mount hooks|error running (?:prestart |createRuntime )?hook|\bhooks?\b[^\n]{0,40}?exit status [1-9]|Failed to setup container", "hook", "setup container"),
    # `ii  nvidia-container-toolkit         1.16.2-1`.
    row("toolkit-installed", r"\bii +nvidia-container-toolkit +(?P<version>\d[\w.-]*)", "nvidia-container-toolkit"),
    # `nvidia-container-toolkit-1.17.8`.
    row("toolkit-installed", r"\bnvidia-container-toolkit-(?P<version>1\.\d{1,2}\.\d)", "nvidia-container-toolkit-"),
    # `NVIDIA Container Toolkit CLI version 1.17.4`.
    row("toolkit-installed", r"NVIDIA Container (?:Toolkit CLI|Runtime Hook) version (?P<version>\d[\w.-]*)", "nvidia container"),
    # `marker = "sys_platform == 'linux`.
    row("index-marker", r"marker ?= ?[\"'\\]{1,3}(?:platform_system|sys_platform) ?== ?['\"\\]{1,2}(?:linux|Linux)|\b(?:index|pytorch-cu\d{2,3}|cuda|cu\d{2,3})\b[^.\n]{0,30}\bonly (?:on|for|under) linux", "linux"),
    # run `Upscaler.exe
    row("packaged-program", r"[\\/]_MEI\d{3,8}[\\/]|\\_internal\\(?:torch|\w+\.dll)|(?:\brun(?:ning)?|\bstart(?:ing|ed)?|\blaunch(?:ing|ed)?|\bopen(?:ing|ed)?|运行|启动|双击|用|打开|запуск\w*)[ `'\"]{1,3}(?!python|pip|cmd|power|ollama|nvidia|wsl|conda|git|uv\b|setup|install)(?P<program>[\w-]{1,30}\.exe)\b", ".exe", "_mei", "_internal"),
    row("gpu-unused", r"FP16 is not supported on CPU; using FP32 instead", "fp16 is not supported on cpu"),
    row("host-of-a-lender", r"\b(?:RunPod|vast\.ai|TensorDock|SaladCloud|Novita)\b|\b(?:can ?not|can't|not allowed to|no way to|unable to) (?:reboot|restart|power[- ]cycle)\b", "runpod", "vast.ai", "tensordock", "saladcloud", "novita", "reboot", "restart", "cycle"),
    # `Training with DataParallel`.
    row("one-process-parallel", r"Training with DataParallel\b|\bnn\.DataParallel\(|nn/parallel/data_parallel\.py", "dataparallel", "data_parallel"),
    # `Llama-3.1-70B`.
    row("model-size", rf"(?<![A-Za-z])(?:{LANGUAGE_MODELS})[\w. -]{{0,16}}?(?<![\d.])(?P<billions>\d{{1,3}}(?:\.\d{{1,2}})?)[ -]?B(?![A-Za-z]|-A\d)", *LANGUAGE_MODELS.split("|")),
    # `_load_global_deps`.
    row("torch-loads-libraries", r"\b_load_global_deps\b|from torch\._C import \*(?! *\n?ModuleNotFound)|\b_preload_cuda_deps\b", "_load_global_deps", "torch._c", "_preload_cuda_deps"),
    # `Standalone Whisper-Desktop r4`.
    row("packaged-program", r"\bStandalone (?P<program>[A-Z][\w-]{2,30}) r?\d", "standalone"),
    row("host-of-a-lender", r"\bhf jobs\b|\bHF Jobs\b|\bHugging ?Face Jobs\b|\b(?:Modal|Paperspace|CoreWeave|Lightning AI|Lambda(?: Labs| Cloud)?|Jarvislabs|Vultr|SageMaker|Vertex AI)\b(?: (?:job|pod|instance|machine|GPU|node)s?)", "hf jobs", "hugging", "modal", "paperspace", "coreweave", "lightning", "lambda", "jarvis", "vultr", "sagemaker", "vertex"),
    # `from diffusers import`.
    row("library-imported", r"\bfrom (?P<library>diffusers|transformers|accelerate|kornia|timm)(?:\.\w+)* import\b", "diffusers", "transformers", "accelerate", "kornia", "timm"),
    # `get_arch_list()) shows me sm_120`.
    row("arch-list-named", r"get_arch_list[^\n]{0,60}?(?<!no )(?<!not )(?<!without )(?<!没有)(?<![A-Za-z])(?P<target>sm_?\d{1,2}\.\d|sm_?\d{2,3})(?!\d)", "get_arch_list"),
    # `docker image`.
    row("image-named", r"\b(?:docker|container)(?:'s)? image\b|\bcontainer's drivers?\b|\bDockerfile\b", "image", "container's driver", "dockerfile"),
    row("wheel-replaced", r"\btorch \d[\w.+]* requires (?P<wheel>nvidia-[a-z-]{3,24}(?:-cu\d\d)?)==(?P<required>\d[\d.]*\d)[^,\n]{0,60}, but you have (?:nvidia-[a-z-]{3,24}(?:-cu\d\d)?) (?P<present>\d[\d.]*\d)", "requires nvidia-"),
    # `C:\Users\me\Python310\msvcp140.dll`.
    row("copied-runtime", r"(?P<folder>[A-Za-z]:\\(?!Windows\\)(?:[\w .()~-]{1,60}\\){0,10}[\w .()~-]{1,60})\\(?P<dll>msvcp140(?:_\d)?\.dll)\b", "msvcp140", unless=r"[\\/]torch[\\/]lib[\\/]"),
    # `NCCL INFO Bootstrap : Using docker0:`.
    row("nccl-on-a-bridge", r"NCCL INFO (?:Bootstrap : Using|NET/Socket : Using \[0\]) ?(?P<interface>docker\d|br-\w{4,16}|virbr\d|veth\w{2,12}):", "nccl info"),
    # `NCCL INFO Bootstrap`.
    row("output-shown", r"NCCL INFO (?:Bootstrap|NET/|Channel|Connected|comm )", "nccl info", what="nccl"),
    # `amdgpu 0000:03:`.
    row("output-shown", r"\b(?:amdgpu|xe|i915) 0000:[0-9a-f]{2}:|\bkernel: \[drm", "0000:", "kernel: ", what="kernel"),
    row("output-shown", r"\bIs CUDA available: ", "is cuda available", what="collect-env"),
    # File ".../torch/utils/collect_env.py", line 437, in get_env_info … IndexError
    row("output-shown", r"torch[/\\]utils[/\\]collect_env\.py['\"], line \d+", "collect_env.py", what="collect-env-fails"),
    # Marketing Name:
    row("output-shown", r"open /dev/kfd(?: read-write)?: Invalid argument", "/dev/kfd", what="kfd"),
    row("output-shown", r"\bgcnArchName\b|\bAgent \d+ +\*|\bMarketing Name: ", "gcnarchname", "agent ", "marketing name", what="devices"),
    # `Thread 0x7f3a (most recent call first)`.
    row("output-shown", r"\bThread 0x[0-9a-f]+ \((?:active|idle|most recent)|\bCurrent thread 0x[0-9a-f]+|\bThread \d+ \((?:active|idle)", "thread 0x", "(active", "(idle", what="threads"),
    # `torch.backends.mps.is_available() True`.
    row("output-shown", r"\bmps\.is_available\(\)\S{0,3} ?(?:\d\.\d{1,2}\.\d\S* )?\W{0,12}(?:True|False)\b|\bMPS (?:is )?available:? (?:True|False)\b", "mps", what="mps"),
    # `torch.xpu.is_available() False`.
    row("output-shown", r"\bxpu\.is_available\(\)\S{0,2} ?\W{0,12}(?:True|False)\b|\bXPU (?:is )?available:? (?:True|False)\b|\bxpu device count is zero\b|\bxpu[. ]device_count(?:\(\))?['\"`]*\)?[,: ]{1,3}\d\b", "xpu", what="xpu"),
    # `PYTORCH_ENABLE_MPS_FALLBACK=1 python main.py`, and torch's warning that it is in effect.
    row("output-shown", r"\b(?:export|setenv|%env) PYTORCH_ENABLE_MPS_FALLBACK[= ]1\b|\bPYTORCH_ENABLE_MPS_FALLBACK=1 (?:\w+=\S{1,40} )*(?:python|accelerate|uv |sh |bash |\.{0,2}/)|\bMPS backend and will fall back to run on the CPU", "mps_fallback", "will fall back to run on the cpu", unless=r"(?:try|tried?|please|should|can|need to) (?:\w+ ){0,3}(?:export|setenv)", what="mps-fallback"),
    # `I already set PYTORCH_ENABLE_MPS_FALLBACK=1`, `PYTORCH_ENABLE_MPS_FALLBACK=1 does not help`.
    row("output-shown", r"\b(?:I|we|I've|have|had|already|after|even|tried|despite)\b(?: (?:have|already|set|setting|tried|trying|enabled|enabling|exported|exporting|added|adding|use|used|using|also|the|both|with|env|environment|variable|flag)){0,6} [`'\"*]{0,2}PYTORCH_ENABLE_MPS_FALLBACK\b|\bPYTORCH_ENABLE_MPS_FALLBACK(?: ?[=:] ?['\"]?1)?[`'\"*]{0,3} (?:(?:is|was) (?:already )?(?:set|enabled|on|active)\b|(?:does|did)(?: not|n't) (?:help|work|change|fix)|has no effect|had no effect|(?:changes|changed) nothing|makes no difference)", "mps_fallback", unless=r"\b(?:can|could|should|must) I\b|\b(?:if|unless) PYTORCH_ENABLE", what="mps-fallback"),
    # `GPU0    GPU1    CPU Affinity`.
    row("output-shown", r"\bGPU0 +GPU1\b|\bGPU0 +X\b", "gpu0 ", what="topology"),
    row("output-shown", r"\bCUDA_LAUNCH_BLOCKING ?= ?[\"']?1", "cuda_launch_blocking", unless=r"For debugging consider passing|set CUDA_LAUNCH_BLOCKING ?= ?1 to|try(?:ing)? ", what="blocking"),
    # `0   N/A  N/A   1234   C   python   5000MiB`.
    row("output-shown", r"\bC(?:\+G)? +\S*python\S* +\d{3,6} ?MiB", "mib", what="processes"),
    # `[level_zero:gpu`.
    row("output-shown", r"\bsycl-ls\b(?:(?!n't\b|\b(?:not|never|cannot|no)\b)[^.\n]){0,24}\b(?:shows?|lists?|sees?|finds?|prints?)\b(?! (?:nothing|no|only))|\[(?:ext_oneapi_)?(?:level_zero|opencl):gpu", "sycl-ls", "level_zero:gpu", "opencl:gpu", what="sycl"),
    # `Illegal instruction`.
    row("program-crashed", r"\bIllegal instruction\b|\bSIGILL\b|\b0xC000001D\b", "illegal instruction", "sigill", "0xc000001d", what="instruction"),
    # `Segmentation fault`.
    row("program-crashed", r"\bSegmentation fault\b|\bSIGSEGV\b|\bsegfaults?\b|\baccess violation\b|\bMemory access fault\b|\b0xC0000005\b", "segmentation", "sigsegv", "segfault", "access", "0xc0000005", what="memory"),
    # `torch.zeros(1, device='cuda')         FAIL`.
    row("torch-call-fails", r"torch\.(?:zeros|ones|randn?|full|arange|tensor)\([^()\n]{0,60}\bcuda\b[^()\n]{0,20}\)(?:\.\w+\([^()\n]{0,20}\))?\W{1,16}(?:fail(?:s|ed)?|error|RuntimeError|crashes)\b", "torch.zeros(", "torch.ones(", "torch.rand", "torch.full(", "torch.arange(", "torch.tensor("),
    # `loss becomes nan`.
    row("wrong-numbers", r"\b(?:loss|outputs?|results?|images?|gradients?|weights?)\b[^.\n]{0,24}?\b(?:becomes?|turns?(?: in)?(?: to)?|goes(?: to)?|went(?: to)?|is|are|gets?) (?:all |only |suddenly )?nans?\b|\bbecomes? nan\b", "nan"),
    # `"runtimes": { "nvidia": {`.
    row("docker-runtime", r"\"runtimes\": ?\{ ?\"nvidia\": ?\{", "runtimes"),
)  # fmt: skip
"""Words that occur both in the output of tools and in people's sentences."""

OTHER_MAKERS: tuple[MessageRow, ...] = (
    *(
        row(
            "foreign-gpu",
            pattern,
            "amd",
            "radeon",
            vendor="amd",
            unless=r"\bNVIDIA\b|\b[RG]TX\b|Ryzen",
        )
        for pattern in (
            r"\b(?:I have|I own|I use|using|with|has|have|got|own) (?:only )?an? (?:AMD|Radeon)\b(?! (?:processor|cpu|ryzen))",
            r"\b(?:AMD|Radeon)(?: (?:card|gpu|graphics))?s? only\b|\bonly (?:an? )?(?:AMD|Radeon)\b",
            r"\b(?:on|my|with|for) (?:an? |my )?(?:AMD|Radeon) (?:card|gpu|graphics)\b|\brun on (?:an? )?Radeon\b",
            r"(?:显卡|グラボ|видеокарт\w|Grafikkarte|carte|tarjeta|placa)[^.\n]{0,12}(?:AMD|Radeon)",
        )
    ),
)
"""Sentences that name a card from a maker other than NVIDIA."""

ENGINE: tuple[MessageRow, ...] = (
    *_situation(
        "container-engine",
        ("cri-o", "crio", "containerd", "k3s", "rke2", "microk8s"),
        r"\b(?P<engine>cri-?o|containerd|k3s|rke2|microk8s)\b",
        unless=r"\b(?:not|instead of|without|no) (?:\w+ )?(?:cri-?o|containerd|k3s|rke2|microk8s)",
    ),
    *_situation(
        "toolkit-installed",
        ("toolkit",),
        r"\b(?:nvidia[- ])?(?:container[- ])?toolkit (?:is |version |v)?\W?(?P<version>1\.\d{1,2}\.\d)\b",
        r"\b(?:nvidia[- ])?container[- ]toolkit (?:is |was )?(?:already |properly )?(?:installed|in place|there|up to date)\b",
        unless=NOT_TRIED,
    ),
    *_situation(
        "python-bound",
        ("python",),
        r"\bpython[ =]{1,3}(?P<python>3\.\d{1,2})\b[^\n]{0,60}?\b(?:cannot be (?:a )?newer|can'?t (?:be upgraded|use a newer)|(?:must|has to) (?:stay|remain|be)|is required|only|no newer)\b",
        r"\b(?:requires?|needs?|bound to|stuck (?:on|with|at)|only (?:works?|supports?|runs?)(?: with| on| for)?|limited to)(?: \w+){0,2} python[ =]{1,3}(?P<python>3\.\d{1,2})\b(?! ?(?:\+|or (?:newer|later|higher)))",
        unless=r">=|or newer|or later|or higher",
    ),
)

COMPUTER = (
    r"(?:pc|computer|machine|desktop|system|workstation|laptop|host|node|rig|whole (?:pc|machine))"
)
SEVERAL: tuple[MessageRow, ...] = (
    # `tensor-parallel`.
    row(
        "several-gpus",
        r"\b(?:[2-9]|[1-9]\d) ?x (?:NVIDIA )?(?:[A-Z]{1,3}\d{2,3}|RTX|\d{4})|\b(?:two|three|four|six|eight|[2-9]|[1-9]\d) (?:gpus|cards|nodes)\b|\bmulti-?(?:gpu|node)\b|\btorchrun\b|\b(?:DDP|FSDP)\b|\btensor[- ]parallel",
        "gpu",
        "x ",
        "card",
        "node",
        "torchrun",
        "ddp",
        "fsdp",
        "tensor",
    ),
    # `With two it`.
    row(
        "several-gpus",
        r"\b(?:with|on|using) (?:two|2|both|all (?:two|four|eight|2|4|8)) (?:it|they|of them|the run|training)\b|(?:两|多|双|四)(?:张|块)?卡|マルチGPU|다중 ?GPU|mehreren? (?:GPUs|Karten)|plusieurs GPU|varias GPU|v[áa]rias GPU|нескольки\w+ (?:GPU|видеокарт)",
        *("with", "on ", "using", "卡", "マルチ", "다중", "mehrere", "plusieurs"),
        *("varias", "várias", "нескольк"),
    ),
    row(
        "run-hangs",
        r"\b(?:hangs?|hung|hanging|freez(?:es|ing)|froze|stuck|stalls?|deadlock\w*|never (?:returns|starts|continues|finishes|ends|terminates)|(?:does not|doesn['’]?t) (?:terminate|finish|ever (?:end|return|finish))|(?:sits|waits|stays)(?: there)? forever|nothing happens)\b|卡住|卡死|不动了|固ま|止まった|止まり|進ま|멈(?:추|춰|췄|춤)|завис|hängt|bleibt stehen|\bse (?:bloque|fige)|colgad|se cuelga|se queda (?:parad|congelad)|\btrava\b|travad",
        *(
            "hang",
            "hung",
            "freez",
            "froze",
            "stuck",
            "stall",
            "deadlock",
            "never ",
            "forever",
            " terminate",
            " finish",
            " ever ",
        ),
        *(
            "nothing happens",
            "卡住",
            "卡死",
            "不动",
            "固ま",
            "止ま",
            "進ま",
            "멈",
            "завис",
            "hängt",
        ),
        *("bleibt", "se bloque", "se fige", "colgad", "cuelga", "se queda", "trava"),
    ),
    # `PC switches off`.
    row(
        "machine-powers-off",
        rf"\b{COMPUTER} (?:\w+ly |then |just |simply )?(?:shuts? (?:itself )?(?:off|down)|(?:turns|powers|switches) (?:itself )?off|reboots|restarts|crashes and reboots|goes (?:off|black))\b|\b(?:shuts|turns|powers|switches) off (?:my|the) (?:whole |entire )?{COMPUTER}\b|\bhard reset\b|\bscreen (?:turns|goes|went) (?:black|dark|blank)\b|\b(?:instant(?:ly)?|sudden(?:ly)?|hard) (?:power[- ]?off|shut ?down|reboots?|powers off)\b"
        r"|(?:自动|突然|直接|就|会|黑屏|死机)(?:关机|重启|断电)|電源が(?:落ち|切れ)|(?:突然|勝手に)(?:シャットダウン|再起動)|(?:컴퓨터|PC|피씨)[가이는은]? ?(?:\S+ )?(?:꺼|재부팅)|(?:PC|Rechner|Computer)[^.\n]{0,24}(?:aus\b|ab\b|startet neu)|(?:PC|ordinateur)[^.\n]{0,16}(?:s'[ée]teint|red[ée]marre)|(?:PC|ordenador|computadora)[^.\n]{0,16}se (?:apaga|reinicia)|(?:PC|computador)[^.\n]{0,16}(?:desliga|reinicia)|(?:компьютер|ПК|комп)\w*[^.\n]{0,16}(?:выключ|перезагр|отключ|вырубает)",
        *("off", "down", "reboot", "restart", "black", "关机", "重启", "断电", "電源", "シャット"),
        *("再起動", "꺼", "재부팅", "rechner", "pc", "computer", "ordinateur", "ordenador"),
        *("computador", "компьютер", "пк", "комп"),
        unless=IF_ONLY.replace("|when", "").replace("|until", ""),
    ),
    # `dies without any message`.
    row(
        "silent-crash",
        r"\b(?:crash\w*|dies|died|exits?|closes|quits|terminates|restarts)\b[^.\n]{0,60}?\b(?:without|no|nothing)\b(?: \w+){0,3}? ?(?:error|message|output|log|traceback|console)|\bcrash\w*[.,]? nothing in\b|闪退|(?:エラー(?:なし|も出ず)[^.\n]{0,12}落ち|落ち[^.\n]{0,12}エラー(?:なし|は出))|튕|st(?:ü|ue)rzt [^.\n]{0,30}ohne|se ferme [^.\n]{0,24}sans|se cierra [^.\n]{0,24}sin|fecha [^.\n]{0,24}sem|вылетает",
        *("crash", "die", "exit", "close", "quit", "terminat", "restart", "闪退", "落ち", "튕"),
        *("ohne", "se ferme", "se cierra", "fecha", "вылетает"),
    ),
    # `pip3 install --no-build-isolation flash-attn`.
    row(
        "install-typed",
        r"\b(?:pip3?|uv pip|uv|conda|mamba) (?:install|add|sync)\b(?: -\S+)*(?: (?P<package>[A-Za-z][\w.-]{1,40}))?",
        *("pip install", "pip3 install", "uv ", "conda install", "mamba install"),
    ),
    # `sudo apt install nvidia-driver-535`.
    row(
        "linux-driver-installed",
        r"\b(?:apt|apt-get|aptitude|dnf|yum|zypper) (?:-\S+ )*install (?:-\S+ )*[^\n`]{0,60}?\b(?:nvidia-driver|nvidia-utils|libnvidia-compute|akmod-nvidia|cuda-drivers|nvidia-open)|\bNVIDIA-Linux-x86_64-[\d.]+\.run\b|\bubuntu-drivers (?:auto)?install",
        *("nvidia-driver", "nvidia-utils", "libnvidia-compute", "akmod-nvidia", "cuda-drivers"),
        *("nvidia-open", "nvidia-linux-x86_64", "ubuntu-drivers"),
    ),
    # `GPU crash dump`.
    row(
        "graphics-crash",
        r"\b(?:D3D1?[0-9]?|DXGI|Direct3D|Vulkan|OpenGL)\b[^.\n]{0,40}\b(?:device (?:removed|lost|hung)|crash|error)|\bDXGI_ERROR_\w+|\bVK_ERROR_DEVICE_LOST\b|\bGPU crash dump\b|\b(?:nvlddmkm|TDR)\b|\bdevice removed\b",
        *("d3d", "dxgi", "direct3d", "vulkan", "opengl", "vk_error", "crash dump", "nvlddmkm"),
        *("tdr", "device removed"),
    ),
)
"""Sentences about a run on several GPUs, a run that does not continue, or a machine or screen that
fails."""

ROWS: tuple[MessageRow, ...] = (
    *unused_gpu.ROWS,
    *SEVERAL,
    *(
        row("remedy-tried", pattern, *TRIED_NEEDLES[what], unless=NOT_TRIED, what=what)
        for what, patterns in TRIED
        for pattern in patterns
    ),
    *SITUATION,
    *ENGINE,
    *OTHER_MAKERS,
    *contrasts.ROWS,
)
"""All sentences as message rows."""
