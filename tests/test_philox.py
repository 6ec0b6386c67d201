"""Philox4x32-10 against the published Random123 known answers, and the compiled one against NumPy."""

import numpy as np
import philox
import pytest

from pto_gpu.campaign.tiles.compiled import philox4x32, row_words

# Random123 1.14, tests/kat_vectors: philox4x32 10
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text):
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_known_answers(counter: str, key: str, expected: str) -> None:
    compiled = philox4x32(*map(np.uint64, words(counter)), *map(np.uint64, words(key)))
    assert [int(w) for w in compiled] == words(expected)
    plain = philox.philox4x32(np.array(words(counter), np.uint32), np.array(words(key), np.uint32))
    assert plain.tolist() == words(expected)


def test_compiled_words_equal_numpy_past_32_bits_of_tile_number() -> None:
    seed, first, c3 = 0xFEDCBA9876543210, 2**32 - 3, 259
    out = np.empty((7, 5, 4), np.uint32)
    row_words(out, np.uint64(seed), np.uint64(first), np.uint64(c3))
    for t in range(7):
        for row in range(5):
            tile = first + t
            counter = np.array([row, tile & 0xFFFFFFFF, tile >> 32, c3], np.uint32)
            key = np.array([seed & 0xFFFFFFFF, seed >> 32], np.uint32)
            assert out[t, row].tolist() == philox.philox4x32(counter, key).tolist()
