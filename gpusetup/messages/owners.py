"""How a text shows who owns an environment: a container image or a program with its own Python.

These are facts, not failures. `fixes.owners` uses them to decide how that torch may be changed.

Sources: the start scripts and the update scripts of the programs' own repositories, the names of
their images in their documentation, as of November 2026.
"""

from __future__ import annotations

from gpusetup.messages.row import row

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

TO_DATA = r"[^\s\"'<>|*?:;,]{0,120}?[\\/](?:models?|loras?|checkpoints|embeddings|outputs?)\b"
"""The rest of a path to a program's data, which other programs read too:
`stable-diffusion-webui\\models\\Lora`."""
OWNER = "environment-owner"
ROWS = (
    # A source repository often has the same name as its image.
    row(OWNER, rf"(?<![\w./-])(?P<name>(?:docker\.io/)?(?:{PROGRAMS_IMAGES}){TAG})", "vllm/vllm", "lmsysorg/", "rocm/vllm", "openmmlab/", "huggingface/t", "open-webui/", "yanwk/", "ai-dock/", "runpod/", "ultralytics/ultralytics", "axolotlai/", "dkr.ecr.", "deeplearning-platform-release", "mcr.microsoft.com/azureml", "unsloth/unsloth", "invoke-ai/", "speaches-ai/", "onerahmet/", "xprobe/", "localai/", unless=r"github\.com|git clone|from_pretrained|huggingface\.co", owner="image"),
    row(OWNER, r"Container image Copyright \(c\)|This container was built for NVIDIA Driver Release|NVIDIA Release 2\d\.\d\d \(build|\d\.\d+\.\d+a0\+[0-9a-f]{7,12}(?:\.nv\d\d\.\d+)", "container image copyright", "this container was built for", "a0+", "(build ", owner="maker-image", name="of NVIDIA"),
    row(OWNER, rf"(?<![\w./-])(?P<name>pytorch/pytorch{TAG})(?![\w./#-])", unless=r"github\.com|git clone|issues?\b|pytorch/pytorch#", owner="base-image"),
    row(OWNER, r"\b(?P<name>ZLUDA|SCALE language)\b", "zluda", "scale language", unless=r"\b(?:no|not|without|instead of|uninstalled|removed) (?:\w+ )?zluda|\bzluda['\"]?\s?[=:]\s?(?:False|None|0|no)\b|\bshould I|zluda\?", owner="translation"),
    *(
        row(OWNER, pattern, unless=rf"(?:{pattern}){TO_DATA}", owner="program", name=name)
        for name, pattern in (
            ("ComfyUI portable", r"python_embed+ed|windows-standalone-build|ComfyUI_windows_portable"),
            ("ComfyUI Desktop", r"comfyorgcomfyui-electron|Programs[\\/]+ComfyUI[\\/]|ComfyUI Desktop"),
            ("Stability Matrix", r"StabilityMatrix[\\/]|Stability ?Matrix"),
            ("Pinokio", r"\bPinokio\b"),
            ("text-generation-webui", r"[\\/]installer_files[\\/]+env|oobabooga"),
            ("stable-diffusion-webui", r"stable-diffusion-webui|sd[.-]webui|webui-user\.(?:bat|sh)"),
            ("SD.Next", r"[\\/]sd\.?next[\\/]|[\\/]automatic[\\/]+venv|SD\.Next"),
            ("kohya_ss", "kohya_ss"),
            ("Fooocus", "fooocus"),
            ("InvokeAI", "invokeai"),
        )
    ),
)  # fmt: skip
"""The owners, with the more specific ones first."""
