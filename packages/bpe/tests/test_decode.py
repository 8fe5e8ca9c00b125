"""The decoder beside the reference, whatever the ids and however they are given."""

import array as arrays_of_python
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpe import reference
from bpe.encoding.decoder import Decoder

TOKEN = st.one_of(st.binary(max_size=40), st.sampled_from(["é", "中", "😀", "a\u0301"]).map(str.encode))
IDS = st.one_of(st.integers(0, 300), st.integers(0, 2**32 - 2))
KINDS = ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", ">u2", ">i8"]


@given(vocab=st.dictionaries(IDS, TOKEN, min_size=1, max_size=60), data=st.data())
def test_decodes_as_the_reference(vocab: dict[int, bytes], data: st.DataObject) -> None:
    decoder = Decoder(vocab)
    ids = data.draw(st.lists(st.sampled_from(sorted(vocab)), max_size=30))
    expected = reference.decode(ids, vocab)
    arrays = [np.array(ids, dtype=kind) for kind in KINDS if max(ids, default=0) <= np.iinfo(kind).max]
    strided = [np.repeat(array, 3)[::3] for array in arrays] + [array[::-1].copy()[::-1] for array in arrays]
    strided += [
        np.frombuffer(b"x" + array.tobytes(), dtype=np.uint8)[1:].view(array.dtype) for array in arrays
    ]  # unaligned
    strided += [memoryview(np.array(ids, dtype=np.uint64)), arrays_of_python.array("Q", ids)]
    frozen = np.array(ids, dtype=np.uint32)
    frozen.flags.writeable = False
    for given_as in (ids, tuple(ids), iter(ids), *arrays, *strided, frozen, np.array(ids, dtype=object)):
        assert decoder.decode(given_as) == expected
    assert decoder.decode_each(frozen) == [vocab[number] for number in ids]
    assert [decoder.decode_one(number) for number in ids] == decoder.decode_each(ids)
    text, begins = decoder.decode_with_offsets(ids, False)
    assert text == expected
    assert begins == [len(reference.decode(ids[:i], vocab)) for i in range(len(ids))]
    unknown = data.draw(IDS.filter(lambda number: number not in vocab))
    for call in (decoder.decode, decoder.decode_each, lambda numbers: decoder.decode_with_offsets(numbers, True)):
        with pytest.raises(KeyError, match=f"no token has the id {unknown}; ids go up to {max(vocab)}"):
            call([*ids, unknown])


@given(text=st.text(max_size=60), cuts=st.lists(st.integers(0, 240), max_size=20))
def test_a_token_inside_a_character_has_its_place(text: str, cuts: list[int]) -> None:
    data = text.encode()
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    vocab = {number: data[begin:end] for number, (begin, end) in enumerate(itertools.pairwise(edges))}
    _, places = Decoder(vocab).decode_with_offsets(list(vocab), True)
    starts = [len(text[:at].encode()) for at in range(len(text))]
    assert places == [sum(start <= edge for start in starts) - 1 for edge in edges[:-1]]


def test_many_ids_without_the_gil() -> None:
    rng = np.random.default_rng(3)
    vocab = {number: bytes(rng.integers(0, 256, size=number % 37, dtype=np.uint8)) for number in range(500)}
    ids = rng.integers(0, 500, size=20_000)
    assert Decoder(vocab).decode(ids) == reference.decode(ids.tolist(), vocab)
    ids[17_000] = 500
    with pytest.raises(KeyError, match="500"):
        Decoder(vocab).decode(ids)


def test_a_list_that_changes_while_it_is_read() -> None:
    class Shrinking(int):
        pass

    class Number:
        def __index__(self) -> int:
            tokens.clear()
            return 1

    tokens: list[object] = [Shrinking(1), Number(), 1, 1]
    with pytest.raises(RuntimeError, match="changed while it was read"):
        Decoder({1: b"a"}).decode(tokens)  # type: ignore[arg-type]


def test_nothing() -> None:
    empty = Decoder({})
    assert (empty.decode([]), empty.decode_each([]), empty.decode_with_offsets([], True)) == (b"", [], (b"", []))
    with pytest.raises(KeyError):
        empty.decode([0])
