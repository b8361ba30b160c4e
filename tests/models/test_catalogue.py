"""Models by name: made once, so many kept, and none closed while somebody may still ask something of it."""

import asyncio
from contextlib import aclosing

import pytest

from perdure.models import catalogue


class Making:
    """A provider whose models say when they are closed, and wait in the middle of an answer."""

    def __init__(self, name, _):
        self.provider, self.name, self.closed, self.go = "making", name, 0, asyncio.Event()
        MADE.append(self)

    async def stream(self, request):
        yield request
        await self.go.wait()
        assert not self.closed
        yield "end"

    async def close(self):
        self.closed += 1


MADE: list[Making] = []


@pytest.fixture
def models(monkeypatch):
    MADE.clear()
    monkeypatch.setattr(catalogue, "PROVIDERS", {"making": Making})
    monkeypatch.setattr(catalogue, "MOST", 3)
    return catalogue.Catalogue({}.get)


def closed():
    return [one.name for one in MADE if one.closed]


async def settled():
    for _ in range(3):
        await asyncio.sleep(0)


async def test_those_asked_for_last_are_kept_and_the_others_closed(models):
    for name in ("a", "b", "c", "a", "d", "e"):
        models.resolve(f"making:{name}")
    await settled()
    assert closed() == ["b", "c"]
    assert [one.name for one in MADE] == ["a", "b", "c", "d", "e"]
    models.resolve("making:b")
    assert [one.name for one in MADE][-1] == "b"
    await models.close()
    assert [one.closed for one in MADE] == [1] * 6


async def test_one_in_use_is_not_closed_until_nobody_has_it(models):
    model = models.resolve("making:a")
    async with aclosing(model.stream("hi")) as stream:
        assert await anext(stream) == "hi"
        for number in range(5):
            models.resolve(f"making:{number}")
        await settled()
        assert "a" not in closed()
        assert models.resolve("making:a") is model, "nor is it made twice while somebody has it"
        for number in range(5):
            models.resolve(f"making:{number}")
        MADE[0].go.set()
        assert await anext(stream) == "end"
    del model
    models.resolve("making:4")
    await settled()
    assert "a" in closed()
    await models.close()
    assert all(one.closed == 1 for one in MADE)


async def test_closing_closes_what_is_still_held_and_makes_anew_what_is_asked_for_later(models):
    held = models.resolve("making:a")
    await models.close()
    assert closed() == ["a"]
    assert models.resolve("making:a") is not held
    del held
    await models.close()
    assert [one.closed for one in MADE] == [1, 1]
