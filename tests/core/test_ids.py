"""Minting: a hundred random bits, written in digits that a caller may use too."""

import os
import re

from perdure import ids


def test_an_id_is_its_prefix_and_a_hundred_bits_of_the_entropy_in_base_32():
    for given in (bytes(20), b"\xff" * 20, *(os.urandom(20) for _ in range(200))):
        made = ids.mint("ses", lambda size, given=given: given[:size])
        assert made == f"ses_{''.join('0123456789abcdefghijklmnopqrstuv'[byte % 32] for byte in given)}"
        assert re.fullmatch(r"ses_[0-9a-v]{20}", made)
        assert ids.check("Session id", made) == made
