"""What people say of an install, a build or an import that failed, where they paste no message.

Sources, as of November 2026: titles and first lines of threads in issue trackers.
"""

from __future__ import annotations

from gpusetup.messages.row import row

IF = r"\b(?:if|when|whenever|whether|unless|in case|until|make sure|once) (?:\S{1,16} ){0,5}?"
OTHERS_GPU = r"\b(?:AMD|Radeon|ROCm|Intel Arc|macOS|Jetson)\b|no (?:NVIDIA )?GPU"

TORCH_MISSING = (
    *(
        row(
            "torch-missing",
            needle,
            r"\b(?:errors?|says?|saying|said|claims?|claiming|claimed|complain\w*|tells?|told|report\w*|thinks?)\b[^.\n]{0,24}?[`'\"]?(?:py)?torch[`'\"]? "
            r"(?:(?:does ?n[o']t|does not|doesnt) exist\b|is(?: not|n't) installed\b|is missing\b|(?:could not|cannot|can't|can not|couldn't) be found\b)",
            unless=rf"{IF}(?:py)?torch|\b(?:with|for|in) (?:py)?torch (?:is not|isn't|does)",
        )
        for needle in ("torch", "pytorch")
    ),
)
"""A program that finds no torch, as its user says it."""

PUT_BACK = r"(?:re)?install(?:s|ed|ing)?|download(?:s|ed|ing)?|put(?:s|ting)?|restor(?:es|ed|ing)"
CPU_ONLY = (
    *(
        row(
            "torch-not-compiled-with-cuda",
            needle,
            rf"\btorch\b.{{0,300}}?\bonly (?:the |a )?CPU(?:[- ]only)? (?:version|build|wheel|variant)s?\b[^.\n]{{0,24}}? (?:be |is |was |gets? |are |being )?(?:{PUT_BACK})\b",
            unless=rf"\b(?:want|wants|need|needs) (?:\S{{1,12}} ){{0,3}}only|{OTHERS_GPU}",
        )
        for needle in ("only the cpu", "only a cpu", "only cpu")
    ),
)
"""An update that put torch's CPU build in the place of another."""

NEW_ARCH = r"(?:sm_?1[02][0-3]\b|compute_1[02][0-3]\b|Blackwell\b|RTX ?50[5-9]0)"
SUPPORTS_NOT = r"(?:does not|doesn't|does n[o']t|doesnt|did not|didn't|cannot|can't|do not|don't) (?:yet |currently |officially )?(?:support|include|have (?:support|kernels) for|work (?:with|on)|recogni[sz]e)"
NO_BLACKWELL = tuple(
    row(
        "gpu-not-in-wheel",
        needle,
        rf"\b(?:py)?torch\b(?: version| build| wheel| install(?:ation)?)?(?: \d[\w.+]{{1,20}})?,?(?: (?:which|that|and it|it|still))? {SUPPORTS_NOT} (?:my |the |an? |NVIDIA |GeForce )*{NEW_ARCH}",
        unless=rf"{IF}(?:py)?torch|\b(?:flash|xformers|triton|vllm|extension)\b[^.\n]{{0,40}}does",
        side="new",
        said="in words",
    )
    for needle in ("support", "include", "have ", "work ", "recogni")
)
"""A torch of which somebody says that it lacks the kernels of the newest GPUs."""

TO_NOUVEAU = (
    row(
        "nouveau-in-the-way",
        "nouveau",
        r"\bfalls? back to (?:the )?nouv?eau\b|\bnouveau (?:is |was |gets? )?(?:still )?(?:loaded|used|active|running) (?:instead|rather)\b",
        unless=rf"{IF}(?:\S{{1,16}} )?fall|\b(?:not|never|no longer) (?:\w+ )?falls? back",
    ),
    row(
        "nouveau-in-the-way",
        "noveau",
        r"\bfalls? back to (?:the )?noveau\b",
        unless=rf"{IF}(?:\S{{1,16}} )?fall",
    ),
)

COMPILER = (
    row(
        "compiler-missing",
        "cl.exe",
        r"(?:\b(?:cpp_extension|setup\.py|wheel|pip|build|install\w*)\b.{0,400}?)?[`'\"]?\bcl(?:\.exe)?[`'\"]?(?: (?:being|was|is) (?:called|invoked|run)\b[^,\n]{0,60}?)?,? (?:but )?(?:it )?(?:is not|isn't|was not|wasn't|could not be|cannot be|can't be|not) (?:be )?found\b",
        unless=rf"{IF}[`'\"]?cl\b",
    ),
)

ROWS = (*TORCH_MISSING, *CPU_ONLY, *NO_BLACKWELL, *TO_NOUVEAU, *COMPILER)
