"""Minting: a hundred random bits, written in digits that a caller may use too."""

import base64
import os
import re

from perdure import ids


def test_an_id_is_its_prefix_and_a_hundred_bits_of_the_entropy_in_base_32():
    for given in (bytes(13), b"\xff" * 13, *(os.urandom(13) for _ in range(200))):
        made = ids.mint("ses", lambda size, given=given: given[:size])
        assert made == f"ses_{base64.b32hexencode(given)[:20].decode().lower()}"
        assert re.fullmatch(r"ses_[0-9a-v]{20}", made)
        assert ids.check("Session id", made) == made
