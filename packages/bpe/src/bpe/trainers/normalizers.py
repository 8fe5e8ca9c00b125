"""Parts that change a text before it is split."""

from bpe.trainers._component import components

NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Nmt, Strip, Prepend, Replace, BertNormalizer, Sequence = components(
    *("normalizers", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt"),
    *("Strip", "Prepend", "Replace", "BertNormalizer"),
)
