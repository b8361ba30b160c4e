"""The window that counts is that of the model that answers, whoever chose it (CMP-1)."""

import subprocess
import sys

import pytest

from perdure import Agent, Perdure, errors
from perdure.core import compaction, request
from perdure.models import windows
from perdure.models.scripted import ScriptedModel, Text

LONG = "a long story " * 100


class Talker:
    """A model that answers, and summarises when it is asked to."""

    def __init__(self, name):
        self.summarised = 0
        self.model = ScriptedModel(self.reply, provider="own", name=name)

    def reply(self, asked):
        last = asked.messages[-1]
        if isinstance(last, request.UserMessage) and last.content[0].text == compaction.SUMMARISE:
            self.summarised += 1
            return [Text("What was said")]
        return [Text("Well.")]


@pytest.fixture
def small():
    return Talker("small")


@pytest.fixture
def large():
    return Talker("large")


@pytest.fixture
def perdure(tmp_path, small, large):
    def made(**agent):
        return Perdure(
            [Agent("main", **agent)],
            models={"own:small": small.model, "own:large": large.model},
            windows={"own:small": 200},
            database=str(tmp_path / "perdure.db"),
        )

    return made


async def ask(session, *texts):
    for text in texts:
        receipt = await session.wait((await session.prompt(text)).id, timeout=20)
        assert receipt.outcome == "succeeded"


async def test_the_window_of_the_model_that_a_session_chose_counts_and_not_the_agents_cmp_1(perdure, small, large):
    async with perdure(model="own:large", context_tokens=10**6) as app:
        await ask(await app.sessions.create(), LONG, "And now?")
        await ask(await app.sessions.create(model="own:small"), LONG, "And now?")
    assert (small.summarised, large.summarised) == (1, 0)


async def test_an_agents_number_is_of_its_own_model_alone_cmp_1(perdure, small, large):
    async with perdure(model=small.model, context_tokens=200) as app:
        await ask(await app.sessions.create(model="own:large"), LONG, "And now?")
        assert (small.summarised, large.summarised) == (0, 0)
        await ask(await app.sessions.create(model="own:small"), LONG, "And now?")
        await ask(await app.sessions.create(), LONG, "And now?")
    assert (small.summarised, large.summarised) == (2, 0)


async def test_a_switch_of_the_model_changes_the_window_from_the_next_step_on_cmp_1(perdure, small, large):
    async with perdure(model="own:large", context_tokens=10**6) as app:
        session = await app.sessions.create()
        await ask(session, LONG)
        await session.switch_model("own:small")
        await ask(session, "And now?")
    assert (small.summarised, large.summarised) == (1, 0)


@pytest.mark.parametrize("tokens", [0, -1, 1.5, "200", True])
def test_a_window_that_is_no_number_of_tokens_is_refused(tokens):
    with pytest.raises(errors.ConfigError, match="own:small"):
        Perdure(windows={"own:small": tokens})


def test_the_packaged_list_knows_windows_and_guesses_none():
    known = windows.Windows({"openai:gpt-4o": 7})
    assert known.of("openai:gpt-5") is None
    known.listed = windows.packaged()
    assert known.of("openai:gpt-4o") == 7
    assert known.of("openai:gpt-4o-mini") == 128_000
    for name in ("openai:nothing-like-it", "nobody:gpt-4o", "", "plain"):
        assert known.of(name) is None


def test_without_the_extra_there_is_no_list():
    code = (
        "import sys; sys.modules['genai_prices'] = None\nfrom perdure.models import windows\nprint(windows.packaged())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "None\n"
