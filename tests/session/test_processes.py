"""Real processes on one file: one is stopped beyond its lease and goes on, one is killed, several work at once."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from perdure import clock
from perdure.core import events
from perdure.models.scripted import Text
from perdure.testing import invariants

SESSION = "ses"
pytestmark = [pytest.mark.crash, pytest.mark.slow]


@pytest.fixture
def start(tmp_path, empty_database):
    started = []

    def program(lease=None, crowd=None):
        place = Path(__file__).with_name("crowd.py" if crowd else "paused.py")
        more = [crowd, "12"] if crowd else [str(tmp_path / "ledger"), str(lease)]
        command = [sys.executable, str(place), str(tmp_path / "perdure.db"), *more]
        one = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(one)
        return one

    yield program
    for one in started:
        one.kill()
        one.communicate()


def told(program):
    return program.stdout.readline().strip()


def tell(program):
    program.stdin.write("\n")
    program.stdin.flush()


def pause(program):
    program.send_signal(signal.SIGSTOP)
    os.waitpid(program.pid, os.WUNTRACED)


def kill(program):
    """Kill it and leave a zombie: nobody has collected it yet."""
    program.kill()
    os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)


async def test_a_process_stopped_beyond_its_lease_changes_nothing_once_it_goes_on_ex_2(start, nodes, check, tmp_path):
    stopped = start(lease=1)
    assert told(stopped) == "waiting"
    pause(stopped)
    alive = await nodes([[Text("Hi")]], own_clock=clock.SystemClock())
    session = await alive.app.sessions.get(SESSION)
    assert (await session.wait("hello")).outcome == "succeeded", "the lease ends, and another goes on"
    names = await alive.names()
    tell(stopped)  # its model answers with a call
    tell(stopped)
    stopped.send_signal(signal.SIGCONT)
    assert told(stopped) == "over"
    assert await alive.names() == names
    assert not (tmp_path / "ledger").exists(), "no tool was started"
    assert told(stopped) == "elsewhere succeeded", "it stays healthy for its other sessions"
    await check(alive)


async def test_a_killed_process_is_recovered_at_once_whatever_its_lease_ex_5(start, nodes, check):
    killed = start(lease=600)
    assert told(killed) == "waiting"
    kill(killed)
    alive = await nodes([[Text("Hi")]], own_clock=clock.SystemClock())
    session = await alive.app.sessions.get(SESSION)
    assert (await session.wait("hello")).outcome == "succeeded"
    await alive.quiet()
    assert len(await alive.facts(events.StepRecovered)) == 1
    await check(alive)


async def test_of_three_processes_that_prompt_one_session_at_once_none_loses_a_prompt_or_runs_beside_another_ex_1_in_12(
    start, nodes, check
):
    crowd = [start(crowd=name) for name in ("one", "two", "three")]
    assert [told(one) for one in crowd] == ["ready"] * 3
    for one in crowd:
        tell(one)
    assert [told(one) for one in crowd] == ["succeeded"] * 3
    for one in crowd:
        tell(one)
        one.wait(20)
    alive = await nodes(deaf=True, own_clock=clock.SystemClock())
    await check(alive)
    left = await invariants.left(alive.log, SESSION)
    assert invariants.at_rest(left) == []
    prompts = {f"{name}-{number}" for name in ("one", "two", "three") for number in range(12)}
    admitted = [one.message_id for one in left.facts(events.PromptAdmitted)]
    assert sorted(admitted) == sorted(prompts), "each was stored once, and nothing had to be recovered"
    settled = [one for ended in left.facts(events.ExecutionEnded) for one in ended.message_ids]
    assert sorted(settled) == sorted(prompts)
