from bpe.counting.pretoken_counts import PretokenCounts
from bpe.encoding.encoder import Encoder

class SpelledCounts(PretokenCounts):
    def spell_by(self, encoder: Encoder, tokens: list[bytes]) -> None: ...
    @property
    def text_bytes(self) -> int: ...
