"""The seed of all hash tables of text: random, and the same throughout a process.

With a fixed seed somebody could prepare a text whose pretokens all collide, and encoding or counting it would take
quadratic time. No result depends on the seed.
"""

import os

hash_seed = int.from_bytes(os.urandom(8), "little")


def seed():
    """The seed of this process."""
    return hash_seed
