"""deepseek-v3: three splits in sequence, each within the pieces that the one before it left:

`\\p{N}{1,3}`, then `[一-龥぀-ゟ゠-ヿ]+`, then

    [!"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_\\`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+
    | ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+
"""


cdef uint64_t deepseek_begins(Scanner *s) noexcept nogil:
    """A bit for each byte of the current word that begins a pretoken. Marks are letters; tab: as in cl100k.

    The first two splits leave three kinds of pieces: numbers, Han (with kana, their marks and their punctuation) and
    the rest, and nothing joins characters of two kinds. Within a piece of one kind:

    * A run of letters begins a pretoken, unless it is joined to the character before it: a tab; an `other` character,
      which is what no expression takes but as the one before letters; or an ASCII punctuation character that is `alone`
      (see cl100k). This last takes ASCII letters only: after a run of these, other letters begin a pretoken.
    * A run of punctuation (symbols are that too) begins one, unless a blank before it does so in its place.
    * A run of other characters is what lies between two matches, and so one piece, but for the last if letters follow.
    * White space: as in cl100k, but (?!\\S) also holds before a piece of another kind.
    * Digits: every third.
    """
    cdef uint64_t letter = s.word.letter, digit = s.word.digit, space = s.word.space, line = s.word.line
    cdef uint64_t punctuation = s.word.punctuation, han = s.word.han, ascii_letter = letter & ~s.word.high
    cdef uint64_t other = ~(letter | digit | space | punctuation)
    cdef uint64_t follows_letter = following(letter, &s.before.letter)
    cdef uint64_t follows_digit = following(digit, &s.before.digit)
    cdef uint64_t follows_han = following(han, &s.before.han)
    cdef uint64_t follows_blank = following(s.word.blank, &s.before.blank)
    cdef uint64_t follows_tab = following(space & ~line, &s.before.tab)
    cdef uint64_t follows_other = following(other, &s.before.other)
    cdef uint64_t follows_punctuation = following(punctuation, &s.before.punctuation)
    cdef uint64_t changes = (digit ^ follows_digit) | (han ^ follows_han)
    cdef uint64_t opens = punctuation & (changes | ~(follows_punctuation | follows_blank))
    cdef uint64_t follows_alone = following(opens & ~s.word.high, &s.before.alone)
    cdef uint64_t run = flood(ascii_letter & (follows_alone | s.before.run), ascii_letter)
    cdef uint64_t follows_run = following(run, &s.before.run)
    cdef uint64_t taken = flood(line & (follows_punctuation & ~follows_han | s.before.taken), line)
    cdef uint64_t begins, last, last_ahead

    begins = changes | opens | groups_of_three(s, follows_digit) | (letter & ~ascii_letter & follows_run)
    begins |= letter & ~(follows_letter | follows_tab | follows_other | follows_alone & ascii_letter)
    begins |= spaces_begin(s, taken, space | digit | han, s.ahead.space | s.ahead.digit | s.ahead.han)

    last = other & preceding(letter, s.ahead.letter) & ~(han ^ preceding(han, s.ahead.han))
    last_ahead = ~(s.ahead.letter | s.ahead.digit | s.ahead.space | s.ahead.punctuation)
    last_ahead &= s.ahead.letter >> 1 & ~(s.ahead.han ^ s.ahead.han >> 1)
    begins |= (other & ~follows_other) | first_bytes(s, last, last_ahead)
    return begins
