"""No process outlives its call or its owner (RUN-6, EX-3, EX-9): real ones, killed for real."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from perdure.session import owner
from perdure.tools import processes

OWNER = owner.mint(os.urandom)


@pytest.fixture
def run(tmp_path):
    """Run a shell command to its end, in this thread."""

    def run(command, *, timeout_s=30.0, cancelled=None, output=None):
        return processes.run(
            ["/bin/sh", "-c", command],
            cwd=tmp_path,
            env=dict(os.environ),
            owner_id=OWNER,
            cancelled=cancelled or threading.Event(),
            timeout_s=timeout_s,
            output=output or (lambda data: None),
        )

    return run


def test_a_command_gives_its_output_and_its_code(run):
    output = bytearray()
    ended = run("echo out; echo err >&2; exit 7", output=output.extend)
    assert (ended.how, ended.code, bytes(output)) == ("exited", 7, b"out\nerr\n")


def test_a_command_has_no_input(run):
    output = bytearray()
    assert run("cat; echo read", output=output.extend).code == 0
    assert bytes(output) == b"read\n"


def test_all_output_of_a_flood_arrives(run):
    output = bytearray()
    run("head -c 3000000 /dev/zero; echo end", output=output.extend)
    assert len(output) == 3_000_004
    assert output.endswith(b"end\n")


def test_what_a_command_left_in_the_background_ends_with_it(run, pids):
    ended = run(f"sleep 1000 & echo $! > {pids.path}; (sleep 1000; true) & echo $! > {pids.path}; exit 0")
    assert ended.how == "exited"
    assert pids.gone(*pids.read(2))


def test_a_daemon_that_left_the_group_ends_with_its_command(run, pids):
    daemon = f"echo $$ > {pids.path}; echo > gone; exec sleep 1000"
    run(f"mkfifo gone; setsid sh -c '{daemon}' </dev/null >/dev/null 2>&1 & read -r line < gone")
    assert pids.gone(*pids.read(1))


def test_run_6_a_time_out_ends_the_whole_group_however_deaf(run, pids):
    stubborn = f"trap '' TERM; echo $$ > {pids.path}; sleep 1000 & echo $! > {pids.path}; while :; do sleep 1000; done"
    ended = run(stubborn, timeout_s=1.5)
    assert ended.how == "timeout"
    assert ended.code == -signal.SIGKILL
    assert pids.gone(*pids.read(2))


def test_run_6_a_cancelled_command_may_tidy_up_and_then_its_group_is_gone(run, pids):
    cancelled = threading.Event()
    output = bytearray()

    def cancel_when_it_runs():
        found.extend(pids.read(1))
        cancelled.set()

    found: list[int] = []
    watching = threading.Thread(target=cancel_when_it_runs)
    watching.start()
    command = f"trap 'echo tidied; exit 0' TERM; sleep 1000 & echo $! > {pids.path}; wait"
    ended = run(command, cancelled=cancelled, output=output.extend)
    watching.join()
    assert ended.how == "cancelled"
    assert bytes(output) == b"tidied\n"
    assert pids.gone(*found)


def test_a_command_that_cannot_start_says_so(tmp_path):
    with pytest.raises(OSError, match="nowhere"):
        processes.run(
            ["true"],
            cwd=tmp_path / "nowhere",
            env={},
            owner_id=OWNER,
            cancelled=threading.Event(),
            timeout_s=1,
            output=lambda data: None,
        )


OWNER_PROGRAM = """
import os, sys, threading
from perdure.session import owner
from perdure.tools import processes
fifo = sys.argv[1]
command = f"echo $$ > {fifo}; sleep 1000 & echo $! > {fifo}; setsid sh -c 'echo $$ > {fifo}; exec sleep 1000' & wait"
processes.run(["/bin/sh", "-c", command], cwd="/", env=dict(os.environ), owner_id=owner.mint(os.urandom),
              cancelled=threading.Event(), timeout_s=1000, output=print)
"""


@pytest.fixture
def owner_process(pids):
    """An owner in a process of its own, whose command runs: a shell, its child, and a daemon that left the group."""
    process = subprocess.Popen([sys.executable, "-c", OWNER_PROGRAM, str(pids.path)])
    yield process
    process.kill()
    process.wait()


@pytest.mark.crash
def test_ex_9_when_the_owner_is_killed_its_group_ends_at_once_and_the_rest_at_the_next_start(owner_process, pids):
    found = pids.read(3)
    daemon = next(pid for pid in found if os.getsid(pid) == pid and os.getpgid(pid) != os.getpgid(found[0]))
    group = [pid for pid in found if pid != daemon]
    processes.end_leftovers(owner.is_dead)  # a live owner's processes are nobody's business
    assert all(pids.runs(pid) for pid in found)
    owner_process.kill()
    owner_process.wait()
    assert pids.gone(*group)
    processes.end_leftovers(owner.is_dead)  # an engine that another test starts may have come first
    assert pids.gone(daemon)


def test_a_mark_of_an_owner_that_nobody_here_can_judge_is_left_alone(pids):
    marked = processes.mark("own_far@another-boot/1/2/3")
    process = subprocess.Popen(["sleep", "1000"], env={processes.MARK: marked}, start_new_session=True)
    try:
        processes.end_leftovers(owner.is_dead)
        assert pids.runs(process.pid)
        assert processes.end_all(marked.__eq__) == 1
    finally:
        process.kill()
        process.wait()
