"""An engine's chance: many bytes at a time, none of them twice."""

import os

from perdure.engine.entropy import DRAW, Pool


def test_no_byte_is_given_twice_across_draws():
    pool = Pool()
    given = [pool(13) for _ in range(3 * DRAW // 13)]
    assert all(len(one) == 13 for one in given)
    assert len(set(given)) == len(given)


def test_a_forked_child_draws_its_own():
    pool = Pool()
    pool(1)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, pool(16))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(reading, 16) != pool(16)
    os.close(reading)
    os.close(writing)
