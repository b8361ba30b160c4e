"""An engine as a whole: it can be entered again, and says what is wrong with what was declared."""

import pytest

from perdure import Agent, Perdure, errors, tool
from perdure.models import scripted
from perdure.testing import fake_provider


async def test_an_engine_can_be_entered_again_and_its_models_work_again(tmp_path, monkeypatch):
    async with fake_provider.serve() as fake:
        monkeypatch.setenv("OPENAI_BASE_URL", fake.url)
        app = Perdure(agents=[Agent("main", model="openai:fake")], database=str(tmp_path / "a.db"))
        for number in range(2):
            async with app:
                session = await app.sessions.create(id="ses")
                receipt = await session.prompt("Hello", id=f"prompt-{number}")
                assert (await session.wait(receipt.id)).outcome == "succeeded"


@tool
def twice() -> str:
    """Twice."""
    return ""


@pytest.mark.parametrize(
    ("agents", "words"),
    [
        ([Agent("a", model="openai:x"), Agent("a", model="openai:y")], "same name"),
        ([Agent("a", model="nobody:x")], "no model 'nobody:x'"),
    ],
)
def test_a_wrong_declaration_is_refused_before_anything_is_opened(agents, words, tmp_path):
    with pytest.raises((errors.ConfigError, errors.UnknownModel), match=words):
        Perdure(agents=agents, database=str(tmp_path / "a.db"))
    assert not list(tmp_path.iterdir())


def test_two_tools_of_one_name_are_refused():
    with pytest.raises(errors.ConfigError, match="two tools named twice"):
        Agent("a", model=scripted.ScriptedModel([]), tools=[twice, twice])
