"""A solution of the exercises of chapter 1."""


def encode_utf8(text: str) -> bytes:
    out = bytearray()
    for point in map(ord, text):
        if point < 0x80:
            out.append(point)
        elif point < 0x800:
            out += bytes([0xC0 | point >> 6, 0x80 | point & 0x3F])
        elif point < 0x10000:
            out += bytes([0xE0 | point >> 12, 0x80 | point >> 6 & 0x3F, 0x80 | point & 0x3F])
        else:
            out += bytes([0xF0 | point >> 18, 0x80 | point >> 12 & 0x3F, 0x80 | point >> 6 & 0x3F, 0x80 | point & 0x3F])
    return bytes(out)


def decode_utf8(data: bytes) -> str:
    points: list[int] = []
    for byte in data:
        if byte < 0x80:
            points.append(byte)
        elif byte < 0xC0:
            points[-1] = points[-1] << 6 | byte & 0x3F
        else:
            points.append(byte & (0x1F if byte < 0xE0 else 0x0F if byte < 0xF0 else 0x07))
    return "".join(map(chr, points))


def is_whole(data: bytes) -> bool:
    if not data:
        return True
    if data[0] & 0xC0 == 0x80:
        return False
    last = max(i for i, byte in enumerate(data) if byte & 0xC0 != 0x80)
    first = data[last]
    size = 1 if first < 0x80 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    return len(data) - last == size
