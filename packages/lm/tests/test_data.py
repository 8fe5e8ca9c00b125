"""Token files, and batches that are a pure function of the step."""

# mypy: disable-error-code="attr-defined"

from __future__ import annotations

import itertools
import json
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lm.data import (
    Shards,
    batch,
    describe,
    open_data,
    open_tokens,
    shuffled,
    token_files,
    windows_of,
    write_tokens,
)

CUDA = pytest.param(
    "cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]
)


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_tokens_come_back_as_they_were_written(tmp_path, dtype):
    parts = [np.arange(5), np.array([], dtype=np.int64), np.array([65535, 0])]
    tokens_written = write_tokens(
        tmp_path / "a.npy", iter(parts), dtype=dtype, tokenizer="ab", text_bytes=21, end_of_text=0
    )
    again = open_tokens(tmp_path / "a.npy")
    for tokens in (tokens_written, again):
        assert tokens.ids.tolist() == [0, 1, 2, 3, 4, 65535, 0]
        assert (tokens.ids.dtype, tokens.tokenizer, tokens.bytes, tokens.end_of_text) == (dtype, "ab", 21, 0)
        assert tokens.bytes_per_token == 3
    assert np.load(tmp_path / "a.npy").tolist() == again.ids.tolist()
    assert json.loads((tmp_path / "a.json").read_text())["count"] == 7
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.json", "a.npy"]


def test_a_failed_write_leaves_what_was_there(tmp_path):
    write_tokens(tmp_path / "a.npy", np.arange(3))

    def parts():
        yield np.arange(4)
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="broke"):
        write_tokens(tmp_path / "a.npy", parts())
    for bad, says in (
        (np.array([70000]), "token id 70000"),
        (np.array([3, -1]), "token id -1"),
        (np.array([]), "no tokens"),
    ):
        with pytest.raises(ValueError, match=says):
            write_tokens(tmp_path / "a.npy", bad)
    assert open_tokens(tmp_path / "a.npy").ids.tolist() == [0, 1, 2]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.json", "a.npy"]


def test_what_is_no_description_is_not_written_over(tmp_path):
    other = tmp_path / "a.json"
    other.write_text('{"model": {}}')  # a tokenizer of that name
    with pytest.raises(FileExistsError, match=r"a\.json is there and is no description of ids"):
        write_tokens(tmp_path / "a.npy", np.arange(3))
    np.save(tmp_path / "a.npy", np.arange(3, dtype=np.uint16))
    with pytest.raises(FileExistsError, match="write to another name"):
        describe(tmp_path / "a.npy")
    assert other.read_text() == '{"model": {}}'
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.json", "a.npy"]


def test_opening_refuses_what_does_not_fit(tmp_path):
    path = tmp_path / "a.npy"
    with pytest.raises(FileNotFoundError, match=r"no token file .*a\.npy"):
        open_tokens(path)
    np.save(path, np.arange(9, dtype=np.uint16))
    assert (open_tokens(path).highest, open_tokens(path).tokenizer) == (8, None)
    assert len(describe(path, text_bytes=9)) == 9
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match="is damaged"):
        open_tokens(path)
    assert len(open_tokens(path, verify=False)) == 9
    np.save(path, np.arange(8, dtype=np.uint16))
    with pytest.raises(ValueError, match=r"8 ids of uint16, and a\.json says 9"):
        open_tokens(path)
    for bad, message in (
        (np.zeros((2, 2), np.uint16), "expected flat"),
        (np.zeros(3), "expected flat"),
        (np.zeros(0, np.uint16), "holds no tokens"),
    ):
        np.save(path, bad)
        with pytest.raises(ValueError, match=message):
            open_tokens(path)
    path.write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"not a \.npy file"):
        open_tokens(path)
    np.save(path, np.arange(9, dtype=np.uint16))
    (tmp_path / "a.json").write_text("[]")
    with pytest.raises(ValueError, match="does not say count"):
        open_tokens(path)
    with pytest.raises(ValueError, match=r"does not end in \.npy"):
        write_tokens(tmp_path / "a.bin", np.arange(3))
    with pytest.raises(ValueError, match="'int64' holds no token ids"):
        write_tokens(path, np.arange(3), dtype="int64")


def test_shuffled_is_not_nearly_in_order():
    order = [shuffled(i, 1000, 5) for i in range(1000)]
    assert order != [shuffled(i, 1000, 6) for i in range(1000)]
    steps = [abs(a - b) for a, b in itertools.pairwise(order)]
    assert 250 < sum(steps) / len(steps) < 420  # a third of the count, for a random order
    assert sum(i == v for i, v in enumerate(order)) < 8


cases = {
    "count": st.integers(12, 200),
    "context": st.integers(1, 11),
    "seed": st.integers(0, 5),
    "rows": st.integers(1, 5),
}


@given(**cases)
@settings(max_examples=60, deadline=None)
def test_an_epoch_has_each_token_once(count, context, seed, rows):
    ids = np.arange(count, dtype=np.uint16)
    windows = count // context
    for epoch in range(2):
        targets = []
        for index in range(epoch * windows, (epoch + 1) * windows):
            x, y = batch(ids, seed, index, 0, 1, 1, context)
            assert ((x + 1) % count).tolist() == y.tolist()  # each target follows its input, around the ring
            targets += y.flatten().tolist()
        assert len(targets) == len(set(targets)) == windows * context > count - context


@given(**cases, step=st.integers(0, 100), world=st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_a_batch_is_a_pure_function_and_ranks_share_the_rows_of_one_process(count, context, seed, rows, step, world):
    ids = np.random.default_rng(0).integers(0, 50000, count).astype(np.uint16)
    x, y = batch(ids, seed, step, 0, 1, world * rows, context)
    assert x.shape == y.shape == (world * rows, context)
    assert x.dtype == y.dtype == torch.int64
    assert torch.equal(x[:, 1:], y[:, :-1])
    ranks = [batch(ids, seed, step, rank, world, rows, context) for rank in reversed(range(world))][::-1]
    assert torch.equal(torch.cat([r[0] for r in ranks]), x)
    assert torch.equal(torch.cat([r[1] for r in ranks]), y)
    halves = [batch(ids, seed, 2 * step + i, 0, 1, rows, context)[0] for i in range(2)]
    assert torch.equal(torch.cat(halves), batch(ids, seed, step, 0, 1, 2 * rows, context)[0])


def test_a_hundred_billion_tokens_need_no_memory():
    class Counting:
        """Ids as many as there may be, none of them in memory: the id at a place is the place."""

        def __len__(self):
            return 10**11

        def __getitem__(self, index):
            return np.arange(index.start or 0, index.stop)

    tracemalloc.start()
    x, y = batch(Counting(), 1, 10**6, 3, 8, 4, 1024)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
    assert torch.equal(y, x + 1)
    assert len(set((x[:, 0] // 10**10).tolist())) > 1  # from far apart


def test_seeds_and_epochs_differ():
    ids = np.arange(1000, dtype=np.uint16)
    first = batch(ids, 0, 0, 0, 1, 20, 10)[0]
    assert not torch.equal(first, batch(ids, 1, 0, 0, 1, 20, 10)[0])
    assert not torch.equal(first, batch(ids, 0, 5, 0, 1, 20, 10)[0])


def test_a_text_shorter_than_a_window_is_refused():
    with pytest.raises(ValueError, match="10 tokens are not enough for a window of context_length 10"):
        batch(np.arange(10), 0, 0, 0, 1, 1, 10)


@given(count=st.integers(1, 60), context=st.integers(1, 12), data=st.data())
def test_windows_score_each_position_once_with_enough_before_it(count, context, data):
    stride = data.draw(st.integers(1, context))
    scored = []
    for begin, first, end in windows_of(count, context, stride):
        assert 0 <= begin <= first < end <= count
        assert end - begin <= context
        assert begin == 0 or first - begin >= context - stride
        scored += range(first, end)
    assert scored == list(range(count))


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6), data=st.data())
@settings(max_examples=60, deadline=None)
def test_shards_are_one_array(sizes, data):
    ids = np.arange(sum(sizes), dtype=np.uint16)
    shards = Shards(np.split(ids, np.cumsum(sizes)[:-1]))
    assert len(shards) == len(ids)
    begin, end = data.draw(st.integers(-12, 60)), data.draw(st.integers(-12, 60))
    assert shards[begin:end].tolist() == ids[begin:end].tolist()
    assert shards[begin:end].dtype == ids.dtype
    assert [shards[i] for i in range(-len(ids), len(ids))] == [ids[i] for i in range(-len(ids), len(ids))]
    context = data.draw(st.integers(1, len(ids)))
    if context < len(ids):
        whole, cut = (batch(kind, 3, 5, 0, 1, 4, context) for kind in (ids, shards))
        assert torch.equal(whole[0], cut[0])
        assert torch.equal(whole[1], cut[1])


def test_shards_refuse_what_they_are_not(tmp_path):
    with pytest.raises(ValueError, match="at least one"):
        Shards([])
    shards = Shards([np.arange(3), np.arange(2)])
    with pytest.raises(ValueError, match="a stride of 2"):
        shards[::2]
    for outside in (5, -6):
        with pytest.raises(IndexError, match="outside the 5 ids"):
            shards[outside]


def test_several_files_are_one(tmp_path):
    paths = [tmp_path / f"part-{i}.npy" for i in (2, 10, 1)]
    for i, path in enumerate(paths):
        write_tokens(path, np.arange(3) + 3 * i, tokenizer="t", text_bytes=10, end_of_text=0)
    tokens = open_tokens(paths)
    assert tokens.ids[:].tolist() == list(range(9))
    assert (tokens.tokenizer, tokens.bytes, tokens.end_of_text, tokens.highest) == ("t", 30, 0, 8)
    assert tokens.sha256 != open_tokens(paths[::-1]).sha256
    assert [path.name for path in token_files(tmp_path)[0]] == ["part-1.npy", "part-2.npy", "part-10.npy"]
    write_tokens(tmp_path / "b.npy", np.arange(3), tokenizer="u")
    with pytest.raises(ValueError, match="different tokenizers"):
        open_tokens([*paths, tmp_path / "b.npy"])
    with pytest.raises(ValueError, match="name at least one"):
        open_tokens([])


@pytest.mark.parametrize(
    ("names", "train", "heldout"),
    [
        ("train heldout", "train", "heldout"),
        ("train-0 train-1 val-0 test-0 other", "train-0 train-1", "val-0"),
        ("a b validation test", "a b", "validation"),
        ("values trains valley", "trains valley values", ""),
    ],
)
def test_names_say_what_is_held_out(tmp_path, names, train, heldout):
    for name in names.split():
        (tmp_path / f"{name}.npy").touch()
    paths_of_kinds = token_files(tmp_path)
    assert [[path.stem for path in paths] for paths in paths_of_kinds] == [train.split(), heldout.split()]


def test_a_folder_with_nothing_to_train_on(tmp_path):
    (tmp_path / "val.npy").touch()
    with pytest.raises(FileNotFoundError, match="no token file to train on"):
        token_files(tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        token_files(tmp_path / "nowhere")


def test_what_is_too_large_to_read_at_the_start_is_taken_at_its_word(tmp_path, monkeypatch):
    path = tmp_path / "a.npy"
    write_tokens(path, np.arange(9))
    data = bytearray(path.read_bytes())
    data[-2] = 99
    path.write_bytes(data)
    monkeypatch.setattr("lm.data.mixture.READ_THROUGH", 4)
    assert open_tokens(path).highest == 8
    with pytest.raises(ValueError, match="is damaged"):
        open_tokens(path, verify=True)


def test_a_description_of_another_kind_is_refused(tmp_path):
    write_tokens(tmp_path / "a.npy", np.arange(9))
    says = json.loads((tmp_path / "a.json").read_text())
    for change in ({"highest": 7}, {"highest": "8"}, {"tokenizer": 3}, {"count": 9.0}):
        (tmp_path / "a.json").write_text(json.dumps({**says, **change}))
        with pytest.raises(ValueError, match=r"a\.json"):
            open_tokens(tmp_path / "a.npy")


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_arrays_of_other_integers_are_read_as_they_are(tmp_path, dtype):
    """A file that np.save writes of torch's ids has the batches of the same ids in 16 bits."""
    ids = np.arange(200) % 120
    np.save(tmp_path / "a.npy", ids.astype(dtype))
    write_tokens(tmp_path / "b.npy", ids)
    batches = [open_data(tmp_path / f"{name}.npy").batch(0, 3, 0, 1, 4, 16) for name in "ab"]
    assert all(torch.equal(one, other) for one, other in zip(*batches, strict=True))
    if dtype != "uint8":
        np.save(tmp_path / "a.npy", ids.astype(dtype) - 1)
        with pytest.raises(ValueError, match=r"a\.npy: expected ids of at least 0, got -1"):
            open_tokens(tmp_path / "a.npy")
