"""Who executes, and whether such an owner is surely dead (EX-5): live, gone, zombie, reused and foreign processes."""

import os
import signal
import subprocess
import sys

import pytest

from perdure.session import owner

HERE = owner._here()
pytestmark = pytest.mark.skipif(HERE is None, reason="the system does not tell boot and namespace")


def id_of(pid, start, place=HERE):
    return f"own_x@{place}/{pid}/{start}"


@pytest.fixture
def sleeper():
    """Another process, alive."""
    program = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield program
    program.kill()
    program.wait()
    program.stdin.close()


def test_an_owner_id_is_random_and_names_boot_namespace_process_and_start_ex_5():
    first, second = owner.mint(os.urandom), owner.mint(os.urandom)
    assert first != second
    assert first.endswith(f"@{HERE}/{os.getpid()}/{owner._started(os.getpid())}")


def test_this_process_is_not_dead_ex_5():
    assert not owner.is_dead(owner.mint(os.urandom))


def test_another_live_process_is_not_dead_and_is_once_it_is_gone_ex_5(sleeper):
    name = id_of(sleeper.pid, owner._started(sleeper.pid))
    assert not owner.is_dead(name)
    sleeper.kill()
    sleeper.wait()
    assert owner.is_dead(name)


def test_a_stopped_process_is_not_dead_ex_5(sleeper):
    name = id_of(sleeper.pid, owner._started(sleeper.pid))
    sleeper.send_signal(signal.SIGSTOP)
    os.waitpid(sleeper.pid, os.WUNTRACED)
    assert not owner.is_dead(name)


def test_a_zombie_is_dead_ex_5(sleeper):
    name = id_of(sleeper.pid, owner._started(sleeper.pid))
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)  # ended, and nobody has collected it
    assert owner.is_dead(name)


def test_a_process_number_used_again_is_another_process_ex_5(sleeper):
    assert owner.is_dead(id_of(sleeper.pid, int(owner._started(sleeper.pid)) - 1))


@pytest.mark.parametrize(
    "name",
    [
        id_of(999_999_999, 1, "another-boot/4026531836"),
        id_of(999_999_999, 1, f"{(HERE or '').split('/')[0]}/1"),
        id_of(999_999_999, 1, "unknown"),
        "own_x@unknown/1/0",
        "own_x",
        "",
        "somebody/else",
    ],
)
def test_of_an_owner_on_another_boot_or_namespace_or_of_another_form_nothing_is_known_ex_5(name):
    assert not owner.is_dead(name)


def test_a_command_name_with_brackets_and_spaces_does_not_confuse_the_start_time_ex_5(tmp_path):
    odd = tmp_path / ") Z 1 ("
    odd.symlink_to(sys.executable)
    program = subprocess.Popen([str(odd), "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert not owner.is_dead(id_of(program.pid, owner._started(program.pid)))
        assert owner._started(program.pid).isdigit()
    finally:
        program.kill()
        program.wait()
        program.stdin.close()


def test_processes_that_fork_after_the_engine_was_declared_own_under_names_of_their_own_ex_5():
    program = """
import asyncio, os, sys, tempfile
from perdure import Perdure
app = Perdure([], database=os.path.join(tempfile.mkdtemp(), "perdure.db"))
reading, writing = os.pipe()
pid = os.fork()
async def name():
    async with app:
        return app.engine.owner_id
mine = asyncio.run(name())
if pid == 0:
    os.write(writing, mine.encode())
    os._exit(0)
os.waitpid(pid, 0)
theirs = os.read(reading, 1000).decode()
print(mine != theirs, mine.split("/")[-2] == str(os.getpid()), theirs.split("/")[-2] == str(pid))
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"] * 3
