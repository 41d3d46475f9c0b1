"""How people and programs say that a training's loss diverges, or that mixed precision is not
faster.

Sources: the log lines of detectron2, fairseq, DeepSpeed, timm and transformers' Trainer; titles of
threads in issue trackers and forums, in nine languages, November 2026.
"""

from __future__ import annotations

# --- the loss diverges ----------------------------------------------------------------------------

NO_NUMBER = r"(?:nan|inf(?:inite|inity)?)\b"

BECOMES = (
    r"(?:is|are|was|were|bec[oa]mes?|becoming|goes|going|went|turns?|turned|gets?|got|equals?|returns?"
    r"|returned|shows?|values?|suddenly|always|just|only|now|immediately|still|then|to|into|as|all|a|or"
    r"|wird|wurde|ist|geht|auf|plötzlich|sofort|devient|est|passe|à|vaut|es|se|vuelve|va|da|fica|é|vira"
    r"|torna-se|становится|стал[аи]?|равен|равна|в)"
)
"""Words that may come between "loss" and its value in a sentence. Words that deny the value are not
included."""

LOSS = r"\b(?:\w{1,20}_)?loss(?:es)?(?:['\"]|_\w{1,12})?"
LOSS_ABROAD = r"(?:verlust|perte|p[ée]rdida|perda|лосс|потер[ияь]|loss)"

EXPLODES = r"(?:explo[dst]\w+|diverg\w+|bl(?:ows?|ew|owing) up|sho(?:ots?|t) up|skyrocket\w*|взрыва\w+|расход\w+)"

COUNTED = r"after (?:\w+ ){0,2}?~?\d[\d.,]{0,8}k? ?(?:steps?|iter\w*|epochs?|batch\w*|updates?|min\w*|hours?)\b"

DIVERGES = "|".join(
    (
        rf"{LOSS}\W{{0,6}}(?:{BECOMES}\W{{1,4}}){{0,5}}(?:tensor\(|\()?[-+]?{NO_NUMBER}",
        r"\bnans?\W{1,4}(?:(?:in|for|as|of|the|my|a|training|train) ){0,3}(?:loss(?:es)?|gradients?)\b",
        rf"\bnans?\b.{{0,40}}?\b{COUNTED}",
        rf"\b{COUNTED}.{{0,60}}?\bnans?\b",
        rf"\b(?:loss|gradients?|grad[_ ]norm)\b (?:(?!not\b|never\b|no\b)\w+ ){{0,3}}?{EXPLODES}",
        r"\bexploding (?:gradients?|loss)\b",
        r"\btraining (?:\w+ ){0,2}(?:unstable|diverge[sd]?|diverging)\b",
        rf"\bgrad(?:ients?)?[_ ]norm['\"]?\W{{1,4}}(?:{BECOMES}\W{{1,4}}){{0,3}}(?:tensor\()?{NO_NUMBER}",
        r"\b\w*Backward\w*' returned nan values in its \d+th output",
        r"\b(?:loss scale already at minimum|minimum loss scale reached)\b",
        rf"\b{LOSS_ABROAD} (?:(?!nicht|nie\b|pas\b|jamais|nunca|no\b|não|не\b|not\b|never)\w+ ){{0,4}}?(?:unendlich|infini\w*|бесконечн\w*|{EXPLODES})",
        rf"\b(?:verlust|perte|p[ée]rdida|perda|лосс|потер[ияь]) (?:(?!nicht|pas\b|no\b|não|не\b)\w+ ){{0,4}}?{NO_NUMBER}",
        r"(?:损失|損失|손실|ロス|loss(?=[^a-z\n]{0,3}[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7a3]))(?![^.\n]{0,10}(?:不是|没有|不会|ない|않))[^.\n]{0,14}?(?:nan|inf|爆炸|爆掉|发散|發散|発散|无穷|無限大|발산|폭발|무한)",
    )
)
"""Words of logs and people for a loss that is NaN or infinite, or that explodes."""

DIVERGES_LETTERS = (
    *(
        "nan",
        "inf",
        "explo",
        "diverg",
        "unstable",
        "loss scale",
        "blow",
        "blew",
        "shoots up",
        "shot up",
    ),
    *("skyrocket", "бесконечн", "взрыва", "расход", "unendlich"),
    *("爆炸", "爆掉", "发散", "發散", "発散", "无穷", "無限大", "발산", "폭발", "무한"),
)

NOT_HAD = (
    # "When training, I get NaN" reports a real loss, so these words do not count as a condition.
    r"\b(?:if|when(?! (?:I|we|training|using|running|fine-?tuning|finetuning)\b)|in case|whether|unless|avoids?|avoiding|prevents?|preventing|against|to stop|no longer"
    r"|fixed|fixes|without|never|could|may|might|would) (?:\S{1,16} ){0,5}?\W{0,2}(?:nans?\b|inf\b|loss|explod|exploding|gradients?|diverg)"
    r"|isnan|isfinite|nan_to_num|!= ?nan|\bassert\b"
)
"""Words of somebody who only talks about such a loss without having it, or of code that guards
against it."""

HALF_PRECISION = (
    r"(?<!b)\bfp16\b|(?<![bB])float16\b|\bhalf[- ]precision\b|\bautocast\b|\bGradScaler\b|\bAMP\b"
    r"|\bmixed[- ]precision\b|混合精度|혼합 정밀도"
)
"""Words for float16, including mixed precision, which uses float16 on CUDA by default."""

# --- mixed precision gains nothing ----------------------------------------------------------------

MIXED_PRECISION = (
    r"(?:\b(?:AMP|autocast|mixed[- ]precision|fp16|bf16|b?float16|half[- ]precision|GradScaler"
    r"|gemischte\w? Präzision|précision mixte|precisi[óo]n mixta|precis[ãa]o mista|смешанн\w+ точност\w+)\b"
    r"|use_amp|use_mixed_precision|混合精度|혼합 ?정밀도)"
)
SPEED = (
    r"(?:speeds?|throughput|times?|performance|it/s|samples/s|tokens/s|epochs?|training|faster|geschwindigkeit"
    r"|vitesse|velocidad|velocidade|скорост\w+)"
)
DENIED = r"(?:\b(?:not|never|barely|hardly|nicht|kaum|keinen?|pas|no|zero|without|não|не)|n['o]t)\b"
BETTER = (
    r"(?:improv\w*|increas\w*|chang\w*|better|go(?:es)? up|reduc\w*|decreas\w*|drop\w*|verbesser\w*"
    r"|erhöh\w*|amélior\w*|augment\w*|mejor\w*|aument\w*|melhor\w*|улучш\w*|увелич\w*|выросл\w*|измени\w*)"
)
FASTER = (
    r"(?:faster|quicker|speed[- ]?ups?|sped up|speed(?:s|ing)? (?:\w+ )?up|accelerat\w*|speed (?:gain|increase"
    r"|improvement|difference)s?|performance (?:gain|improvement|benefit|boost)s?|(?:gain|improvement|difference"
    r"|change|benefit|increase) in (?:\w+ )?(?:speed|time|throughput)|schneller|Geschwindigkeitsgewinn|Beschleunigung"
    r"|plus rapide|accélér\w*|más rápido|aceler\w*|mais rápido|быстрее|ускор\w*)"
)
SAME = (
    r"(?:(?:the |at )?(?:same|identical) (?:\w+ )?(?:speed|time|throughput|duration|it/s)|as slow as|as long as"
    r"|slower(?! than (?:yesterday|before|usual|last))|(?:speed|time|throughput)\w{0,2} (?:is |was |are |stays? |stayed )?(?:\w+ )?unchanged"
    r"|brought nothing[^.\n]{0,24} (?:speed|time)|brachte nichts|bringt nichts|gleich schnell|langsamer|plus lent|más lento|mais lento|медленнее)"
)

NOT_FASTER_FORMS = (
    rf"{SPEED} (?:\S{{1,16}} ){{0,3}}?\S{{0,6}}{DENIED} (?:\S{{1,16}} ){{0,2}}?{BETTER}",
    rf"{DENIED} (?:\S{{1,16}} ){{0,4}}?{FASTER}",
    SAME,
)
NOT_FASTER = "|".join(
    (
        *(rf"{MIXED_PRECISION}.{{0,90}}?{form}" for form in NOT_FASTER_FORMS),
        rf"(?:{NOT_FASTER_FORMS[1]}|{NOT_FASTER_FORMS[0]}|\bslower) (?:(?:with|when|after|under|using|in|from|by|through|if|mit|avec|con|com|с|use|using|enabling|turning|on|I|the) ){{1,4}}(?:torch\.(?:cuda\.)?)?{MIXED_PRECISION}",
        r"混合精度[^.\n]{0,24}?(?:没有?(?:变快|加速|提升|提速|效果)|沒有?(?:變快|加速|提升)|不(?:变快|加速|快)|速度(?:没有?|沒有?|不)(?:变|變|提|快)|反而(?:更)?慢|速くなら|早くなら)",
        r"(?:AMP|fp16|混合精度)[^.\n]{0,30}?(?:速度(?:没有?|沒有?|不)(?:变|變|提|快)|没有?(?:变快|加速|提升|提速)|速くなら|早くなら|빨라지지|빠르지 않)|혼합 ?정밀도[^.\n]{0,24}?(?:빨라지지|빠르지 않|차이가 없)",
    )
)
"""Mixed precision and a speed that did not improve, mentioned close to each other."""

NOT_FASTER_LETTERS = (
    *(
        "amp",
        "autocast",
        "precision",
        "fp16",
        "bf16",
        "float16",
        "gradscaler",
        "präzision",
        "mixte",
    ),
    *("mixta", "mista", "смешанн", "混合精度", "정밀도"),
)

NOT_ABOUT_TRAINING = (
    r"\b(?:without|no|disabl\w+|instead of) (?:AMP|autocast|mixed[- ]precision|fp16|bf16)\b"
    r"|\bint[48]\b|quantiz|gguf|vllm|llama|ollama|out of memory|\bif (?:it|the speed|you|your)\b"
    r"|\bnot (?:being )?(?:detected|found|seen|used|recogni[sz]ed)|\bon (?:the )?cpu\b"
)
"""Words that show that something else is meant: the slow run is without mixed precision, a model is
served or quantized, or no GPU is used."""
