"""How a text shows who owns an environment: a container image, a program with its own Python, or an
environment module.

Sources: the start scripts and the update scripts of the programs' own repositories, the names of
their images in their documentation, as of November 2026.
"""

from __future__ import annotations

import re
from typing import Literal

from gpusetup.model.frozen import Frozen
from gpusetup.model.patterns import lazy

OwnerKind = Literal[
    "image", "base-image", "maker-image", "module", "program", "project", "translation", "offline"
]


class OwnerForm(Frozen):
    """One way in which texts show the owner of an environment."""

    owner: OwnerKind
    pattern: re.Pattern[str]
    letters: tuple[str, ...]
    """Lower-case strings. Every match of the pattern contains one of them."""
    name: str = ""
    """The owner's name, if the pattern has no group `name`."""
    unless: re.Pattern[str] | None = None
    """A pattern that shows, in the same lines, that something else is meant."""


TAG = r"(?::[\w.-]{1,60})?"
PROGRAMS_IMAGES = (
    r"vllm/vllm-[\w-]+|lmsysorg/sglang|rocm/vllm[\w-]*|openmmlab/lmdeploy"
    r"|(?:ghcr\.io/)?huggingface/(?:text-generation-inference|text-embeddings-inference"
    r"|transformers-[\w-]+)|(?:ghcr\.io/)?open-webui/open-webui|yanwk/comfyui-boot"
    r"|(?:ghcr\.io/)?ai-dock/[\w-]+|runpod/[\w-]+|ultralytics/ultralytics|axolotlai/axolotl[\w-]*"
    r"|unsloth/unsloth|(?:ghcr\.io/)?invoke-ai/invokeai|(?:ghcr\.io/)?speaches-ai/speaches"
    r"|\d{12}\.dkr\.ecr\.[\w-]+\.amazonaws\.com/[\w-]*pytorch[\w-]*"
    r"|gcr\.io/deeplearning-platform-release/pytorch[\w.-]*|mcr\.microsoft\.com/azureml/[\w/.-]+"
    r"|onerahmet/openai-whisper-asr-webservice|xprobe/xinference|localai/localai"
)
"""Container images that include one program and the torch that it was built for."""

FORMS: tuple[OwnerForm, ...] = (
    OwnerForm(
        owner="image",
        pattern=lazy(rf"(?<![\w./-])(?P<name>(?:docker\.io/)?(?:{PROGRAMS_IMAGES}){TAG})"),
        letters=(
            *("vllm/vllm", "lmsysorg/", "rocm/vllm", "openmmlab/", "huggingface/t", "open-webui/"),
            *("yanwk/", "ai-dock/", "runpod/", "ultralytics/ultralytics", "axolotlai/"),
            *("dkr.ecr.", "deeplearning-platform-release", "mcr.microsoft.com/azureml"),
            *("unsloth/unsloth", "invoke-ai/", "speaches-ai/", "onerahmet/", "xprobe/", "localai/"),
        ),
        # A source repository often has the same name as its image.
        unless=lazy(r"github\.com|git clone|from_pretrained|huggingface\.co"),
    ),
    OwnerForm(
        owner="maker-image",
        pattern=lazy(
            r"Container image Copyright \(c\)|This container was built for NVIDIA Driver Release"
            r"|NVIDIA Release 2\d\.\d\d \(build|\d\.\d+\.\d+a0\+[0-9a-f]{7,12}(?:\.nv\d\d\.\d+)"
        ),
        letters=("container image copyright", "this container was built for", "a0+", "(build "),
        name="of NVIDIA",
    ),
    OwnerForm(
        owner="base-image",
        pattern=lazy(rf"(?<![\w./-])(?P<name>pytorch/pytorch{TAG})(?![\w./#-])"),
        letters=("pytorch/pytorch",),
        unless=lazy(r"github\.com|git clone|issues?\b|pytorch/pytorch#"),
    ),
    OwnerForm(
        owner="module",
        pattern=lazy(
            r"\b(?:module|ml) (?:load|add|swap|use) (?:[\w./+-]+ ){0,6}?"
            r"(?P<name>(?:py)?torch(?:[-/][\w./+-]*)?)",
            re.I,
        ),
        letters=("module load", "module add", "module swap", "ml load", "ml add"),
    ),
    *(
        OwnerForm(
            owner="project",
            name=tool,
            pattern=lazy(rf"(?:^|[$>#`(\s]){tool} (?:run|add|install|shell|update|sync|lock)\b"),
            letters=(f"{tool} ",),
        )
        for tool in ("poetry", "pixi", "pdm")
    ),
    OwnerForm(
        owner="translation",
        pattern=lazy(r"\b(?P<name>ZLUDA|SCALE language)\b", re.I),
        letters=("zluda", "scale language"),
        unless=lazy(
            r"(?i)\b(?:no|not|without|instead of|uninstalled|removed) (?:\w+ )?zluda|\bshould I|zluda\?"
        ),
    ),
    OwnerForm(
        owner="offline",
        pattern=lazy(
            r"(?i)\binternet(?: access| connection)? ?(?:is |was |must be |:|=)? ?"
            r"(?:off|disabled|turned off|not (?:allowed|available))\b"
            r"|\b(?:no|without(?: any)?) internet\b|\binternet-?less\b|关闭(?:网络|联网)|(?:没有|无)(?:网络|联网)"
        ),
        letters=("internet", "联网", "网络"),
    ),
    *(
        OwnerForm(owner="program", pattern=lazy(pattern), letters=letters, name=name)
        for name, pattern, letters in (
            (
                "ComfyUI portable",
                r"(?i)python_embed+ed|windows-standalone-build|ComfyUI_windows_portable",
                ("python_embed", "windows-standalone-build", "comfyui_windows_portable"),
            ),
            (
                "ComfyUI Desktop",
                r"(?i)@?comfyorgcomfyui-electron|Programs[\\/]+ComfyUI[\\/]|ComfyUI Desktop",
                ("comfyorg", "programs\\comfyui", "programs/comfyui", "comfyui desktop"),
            ),
            (
                "Stability Matrix",
                r"(?i)StabilityMatrix[\\/]|Stability ?Matrix",
                ("stabilitymatrix", "stability matrix"),
            ),
            ("Pinokio", r"(?i)[\\/]pinokio[\\/]|\bPinokio\b", ("pinokio",)),
            (
                "text-generation-webui",
                r"(?i)[\\/]installer_files[\\/]+env|oobabooga",
                ("installer_files", "oobabooga"),
            ),
            (
                "stable-diffusion-webui",
                r"(?i)stable-diffusion-webui|sd[.-]webui|webui-user\.(?:bat|sh)",
                ("stable-diffusion-webui", "sd-webui", "sd.webui", "webui-user"),
            ),
            (
                "SD.Next",
                r"(?i)[\\/]sd\.?next[\\/]|[\\/]automatic[\\/]+venv|SD\.Next",
                ("sdnext", "sd.next", "automatic"),
            ),
            ("kohya_ss", r"(?i)[\\/]kohya_ss[\\/]|kohya_ss", ("kohya_ss",)),
            ("Fooocus", r"(?i)[\\/]Fooocus[\w.-]*[\\/]|Fooocus", ("fooocus",)),
            ("InvokeAI", r"(?i)[\\/]invokeai[\\/]|invokeai-web|InvokeAI", ("invokeai",)),
        )
    ),
)
"""All forms, with the more specific ones first."""

COMPILED = lazy(
    r"(?i)(?<![\w./\\-])(?P<listed>mmcv(?:[-_]full)?|detectron2|flash[-_]attn|xformers|bitsandbytes"
    r"|torch[-_](?:scatter|sparse|cluster|spline[-_]conv)|pytorch3d|natten|mamba[-_]ssm|causal[-_]conv1d"
    r"|sageattention|nunchaku|spconv(?:-cu\d+)?|MinkowskiEngine|nvdiffrast|auto[-_]gptq|autoawq"
    r"|apex|transformer[-_]engine|deepspeed|diff[-_]gaussian[-_]rasterization)"
    r"(?: version)?[ =:]{1,24}v?\d+\.\d"
    r"|-packages[\\/]+(?P<file>mmcv|detectron2|flash_attn|xformers|torch_scatter|torch_sparse"
    r"|torch_cluster|pytorch3d|natten|mamba_ssm|sageattention|nunchaku|spconv|MinkowskiEngine)[\\/]"
)
"""A package whose libraries are compiled against one torch, named with its version or by one of its
files."""
