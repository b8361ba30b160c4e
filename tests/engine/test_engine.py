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


async def test_a_compaction_that_no_drain_began_before_the_stop_does_not_keep_its_session_ex_9(tmp_path, monkeypatch):
    model = scripted.ScriptedModel([[scripted.Text("Hi")], [scripted.Text("Hi again")]])
    app = Perdure(agents=[Agent("main", model=model)], database=str(tmp_path / "a.db"))
    async with app:
        session = await app.sessions.create(id="ses")
        await session.prompt("Hello", id="p0")
        await session.wait("p0")
        monkeypatch.setattr(app.engine.coordinator, "wake", lambda _: None)
        await session.compact()
    async with app:
        session = await app.sessions.get("ses")
        await session.prompt("And now?", id="p1")
        receipt = await session.wait("p1", timeout=app.engine.settings.lease_seconds / 3)
        assert receipt.outcome == "succeeded"


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
