"""Tiles of the score matrix that a block needs, with or without a mask. Shared by all kernels.

Queries are the last of the keys' positions: query i stands at position i + keys - queries. A block of rows (queries in
the forward pass, keys in the backward pass over keys) meets one run of tiles along the other side. The middle of the
run is full: everything in it is seen. Its two ends are masked: a window's edge, the diagonal, a document's border, the
end of the sequence. What lies outside the run is never read.

    start ── masked ── full ─────────────── rest ── masked ── end
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def load_tile(
    x, strides, batch, head, start, length,
    HEAD: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, CHECKED: tl.constexpr, COPY: tl.constexpr
):  # fmt: skip
    """Rows start … start + ROWS of x[batch, head]: (ROWS, WIDTH), zeros past head_dim.

    CHECKED: rows past length are zeros too. COPY: "described" where x is a tensor descriptor; else x is a pointer, and
    offsets within a tile are "near", of 32 bits, which halves the registers they take, or "far".
    """
    if COPY == "described":
        tile = x.load([batch, head, start, 0]).reshape([ROWS, WIDTH])
    else:
        # The start is a scalar, and 64 bits wide; the rest of the address never changes from tile to tile.
        row, column = tl.arange(0, ROWS)[:, None], tl.arange(0, WIDTH)[None, :]
        base = x + tl.cast(batch, tl.int64) * strides[0] + tl.cast(head, tl.int64) * strides[1]
        base += tl.cast(start, tl.int64) * strides[2]
        if COPY == "far":
            at = base + (row.to(tl.int64) * strides[2] + column.to(tl.int64) * strides[3])
        else:
            at = base + (row * strides[2] + column * strides[3])
        if CHECKED and HEAD < WIDTH:
            tile = tl.load(at, mask=(start + row < length) & (column < HEAD), other=0.0)
        elif CHECKED:
            tile = tl.load(at, mask=start + row < length, other=0.0)
        elif HEAD < WIDTH:
            tile = tl.load(at, mask=column < HEAD, other=0.0)
        else:
            tile = tl.load(at)
    return tile


@triton.jit
def store_tile(
    x, strides, batch, head, start, length, tile,
    HEAD: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr
):  # fmt: skip
    """Writes tile (ROWS, WIDTH) over rows start … of x[batch, head], as far as they and head_dim reach."""
    row, column = tl.arange(0, ROWS)[:, None], tl.arange(0, WIDTH)[None, :]
    base = x + tl.cast(batch, tl.int64) * strides[0] + tl.cast(head, tl.int64) * strides[1]
    base += tl.cast(start, tl.int64) * strides[2]
    at = base + row.to(tl.int64) * strides[2] + column.to(tl.int64) * strides[3]
    tl.store(at, tile.to(x.dtype.element_ty), mask=(start + row < length) & (column < HEAD))


@triton.jit
def block_and_head(blocks, together):
    """The block that this program takes, and its head, counted over the batch.

    Blocks are numbered from the longest. All heads of a group of `together` begin a block before any begins the next
    one, so that the last programs of a launch are short ones.
    """
    program, heads = tl.program_id(0), tl.num_programs(0) // blocks
    group = program // (blocks * together)
    size = tl.minimum(together, heads - group * together)
    place = program - group * blocks * together
    return place // size, group * together + place % size


@triton.jit
def seen(
    i, j, queries, keys, sliding_window, document_ids, document_strides, batch,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, DOCUMENTS: tl.constexpr
):  # fmt: skip
    """True if query i sees key j, of the same shape as i and j broadcast against each other."""
    position = i + (keys - queries)
    yes = (i < queries) & (j < keys)
    if CAUSAL:
        yes = yes & (j <= position)
    if WINDOWED:
        yes = yes & (j > position - sliding_window)
    if DOCUMENTS:
        row = document_ids + tl.cast(batch, tl.int64) * document_strides[0]
        there = (position >= 0) & (i < queries)
        own = tl.load(row + position.to(tl.int64) * document_strides[1], mask=there, other=0)
        theirs = tl.load(row + j.to(tl.int64) * document_strides[1], mask=j < keys, other=0)
        yes = yes & there & (own == theirs)
    return yes


@triton.jit
def softcapped(scores, cap):
    """cap · tanh(scores / cap), by 1 - 2 / (exp(2x) + 1), which is ±1 where the exponential overflows or vanishes."""
    TWO_LOG2E: tl.constexpr = 2.8853900817779268
    return cap - 2.0 * cap / (tl.exp2(scores * (TWO_LOG2E / cap)) + 1.0)


@triton.jit
def softcap_slope(capped, cap):
    """Derivative of softcapped, from its result."""
    share = capped / cap
    return 1.0 - share * share


@triton.jit
def key_run(
    block, queries, keys, sliding_window, runs, batch, blocks,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, DOCUMENTS: tl.constexpr
):  # fmt: skip
    """The run of key tiles that a block of queries meets: start, full and rest, multiples of KEYS, and end."""
    first = block * QUERIES + (keys - queries)  # positions of the block's first and last query
    last = tl.minimum((block + 1) * QUERIES, queries) - 1 + (keys - queries)
    start, end = 0, keys
    full, rest = 0, keys
    if CAUSAL:
        end = tl.minimum(keys, last + 1)
        rest = tl.minimum(keys, first + 1)
    if WINDOWED:
        start = tl.maximum(0, first - sliding_window + 1)
        full = tl.maximum(0, last - sliding_window + 1)
    return _run(start, full, rest, end, runs, batch, block, blocks, KEYS, DOCUMENTS)


@triton.jit
def query_run(
    block, queries, keys, sliding_window, runs, batch, blocks,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, DOCUMENTS: tl.constexpr
):  # fmt: skip
    """The run of query tiles that meets a block of keys: start, full and rest, multiples of QUERIES, and end."""
    before = keys - queries
    first, last = block * KEYS, tl.minimum((block + 1) * KEYS, keys) - 1
    start, end = 0, queries
    full, rest = 0, queries
    if CAUSAL:
        start = tl.maximum(0, first - before)
        full = tl.maximum(0, last - before)
    if WINDOWED:
        end = tl.minimum(queries, last + sliding_window - before)
        rest = tl.minimum(queries, first + sliding_window - before)
    return _run(start, full, rest, end, runs, batch, block, blocks, QUERIES, DOCUMENTS)


@triton.jit
def _run(start, full, rest, end, runs, batch, block, blocks, TILE: tl.constexpr, DOCUMENTS: tl.constexpr):
    start = start // TILE * TILE
    full = tl.cdiv(full, TILE) * TILE
    rest = tl.maximum(rest, 0) // TILE * TILE
    if DOCUMENTS:
        own = runs + (tl.cast(batch, tl.int64) * blocks + block) * 4
        start = tl.maximum(start, tl.load(own) * TILE)
        full = tl.maximum(full, tl.load(own + 1) * TILE)
        rest = tl.minimum(rest, tl.load(own + 2) * TILE)
        end = tl.minimum(end, tl.load(own + 3) * TILE)
    # Where nothing is full, the second masked end takes all of the run.
    if rest <= full:
        full = start
        rest = start
    return start, full, rest, end


@triton.jit
def document_runs_kernel(
    document_ids, strides, runs, rows, columns, row_shift, column_shift, keys,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, CHUNK: tl.constexpr
):  # fmt: skip
    """For each block of rows the tiles of columns that share a document with it: runs (batch, blocks, 4).

    Those are the first tile that may, the first and the end of a run of tiles that lie whole in the one document of the
    block, and the end of those that may, counted in tiles. Tiles are told apart by the least and the greatest document
    in them, so that nothing is skipped wrongly in whatever order documents come. Rows and columns stand at positions
    shifted by row_shift and column_shift.
    """
    block, batch = tl.program_id(0), tl.program_id(1)
    own = document_ids + tl.cast(batch, tl.int64) * strides[0]
    row = block * ROWS + tl.arange(0, ROWS)
    least, greatest, whole = _extent(own, strides[1], row, rows, row_shift, keys, 0)
    single = whole & (least == greatest)

    tiles = tl.cdiv(columns, COLUMNS)
    first, end = tiles, tl.zeros([], tl.int32)
    full, rest = tiles, tiles
    for chunk in range(0, tiles, CHUNK):
        tile = chunk + tl.arange(0, CHUNK)
        column = tile[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
        low, high, complete = _extent(own, strides[1], column, columns, column_shift, keys, 1)
        shared = (low <= greatest) & (high >= least) & (tile < tiles)
        first = tl.minimum(first, tl.min(tl.where(shared, tile, tiles), 0))
        end = tl.maximum(end, tl.max(tl.where(shared, tile + 1, 0), 0))
        same = single & complete & (low == least) & (high == least) & (tile < tiles)
        full = tl.minimum(full, tl.min(tl.where(same, tile, tiles), 0))
        rest = tl.minimum(rest, tl.min(tl.where((tile > full) & (same == 0), tile, tiles), 0))
    at = runs + (tl.cast(batch, tl.int64) * tl.num_programs(0) + block) * 4
    tl.store(at, first)
    tl.store(at + 1, full)
    tl.store(at + 2, rest)
    tl.store(at + 3, end)


@triton.jit
def _extent(own, stride, index, count, shift, keys, AXIS: tl.constexpr):
    """The least and greatest document along AXIS, and True if every index below count has one."""
    NONE: tl.constexpr = 1 << 62
    position = index + shift
    there = (index < count) & (position >= 0) & (position < keys)
    document = tl.load(own + position.to(tl.int64) * stride, mask=there, other=0).to(tl.int64)
    least = tl.min(tl.where(there, document, NONE), AXIS)
    greatest = tl.max(tl.where(there, document, -NONE), AXIS)
    whole = tl.min((there | (index >= count)).to(tl.int32), AXIS) != 0
    return least, greatest, whole
