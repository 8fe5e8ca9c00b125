"""Parts that change a text before it is split."""

from __future__ import annotations

from bpe.trainers._component import REQUIRED, component, sequence

NFC, NFD, NFKC, NFKD = (component(form) for form in ("NFC", "NFD", "NFKC", "NFKD"))
Lowercase = component("Lowercase")
StripAccents = component("StripAccents")
Nmt = component("Nmt")
Strip = component("Strip", strip_left=True, strip_right=True)
Prepend = component("Prepend", prepend="▁")
Replace = component("Replace", pattern=REQUIRED, content=REQUIRED)
BertNormalizer = component(
    "BertNormalizer", clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True
)
Sequence = sequence("normalizers")
