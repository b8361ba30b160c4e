"""Context sources ready to use: what each says, and when it cannot be read."""

import asyncio
import os
from datetime import UTC, timedelta, timezone

import pytest

from perdure import DateSource, FileSource, FunctionSource, errors
from perdure.session import context, sources
from perdure.testing.fake_clock import FakeClock


async def test_a_file_is_read_again_when_it_changed_and_is_named_for_itself_ctx_1(tmp_path):
    path = tmp_path / "AGENTS.md"
    path.write_text("One")
    source = FileSource(path)
    assert (source.name, await source.read()) == ("AGENTS.md", "One")
    path.write_text("Two")
    os.utime(path, ns=(1, 1))
    assert await source.read() == "Two"


async def test_a_file_that_is_not_there_or_empty_says_nothing_ctx_1(tmp_path):
    path = tmp_path / "AGENTS.md"
    source = FileSource(path)
    assert await source.read() is None
    path.write_text("")
    assert await source.read() is None
    path.write_text("Here")
    assert await source.read() == "Here"
    path.unlink()
    assert await source.read() is None
    assert await FileSource(path / "below").read() is None


async def test_a_file_that_cannot_be_read_is_unavailable_ctx_1(tmp_path):
    with pytest.raises(errors.SourceUnavailable):
        await FileSource(tmp_path).read()


async def test_a_huge_or_broken_file_is_cut_and_mended_sec_2(tmp_path):
    path = tmp_path / "AGENTS.md"
    path.write_bytes(b"\xff\xfe" + b"x" * (2 * sources.MAX_BYTES))
    text = await FileSource(path).read()
    assert len(text) == sources.MAX_BYTES
    text.encode()


async def test_the_date_turns_at_midnight_of_its_zone_ctx_1():
    clock = FakeClock(1_700_006_399_000)  # a second before midnight in UTC
    source = DateSource(UTC, clock=clock)
    assert await source.read() == "Today is Tuesday, 2023-11-14."
    assert await DateSource(timezone(timedelta(hours=2)), clock=clock).read() == "Today is Wednesday, 2023-11-15."
    clock.advance(1_000)
    assert await source.read() == "Today is Wednesday, 2023-11-15."


async def test_a_function_may_wait_return_nothing_or_fail_ctx_1():
    async def later():
        await asyncio.sleep(0)
        return "later"

    def failing():
        raise OSError("no network")

    assert await FunctionSource("f", lambda: "now").read() == "now"
    assert await FunctionSource("f", later).read() == "later"
    assert await FunctionSource("f", lambda: None).read() is None
    with pytest.raises(errors.SourceUnavailable, match="OSError: no network"):
        await FunctionSource("f", failing).read()


class Rude:
    """A source that breaks the rules."""

    name = "rude"

    def __init__(self, value=None) -> None:
        self.value = value

    async def read(self):
        if self.value is None:
            raise ZeroDivisionError
        return self.value


@pytest.mark.parametrize("value", [None, 7], ids=["raises anything", "gives no text"])
async def test_a_source_that_breaks_the_rules_cannot_be_read_and_ends_nothing_ctx_1(value):
    seen = await context.observe([Rude(value), context.Instructions("Be brief")])
    assert seen == context.Observation({"instructions": "Be brief"}, ("rude",))


async def test_hostile_text_of_a_source_can_be_stored_sec_2():
    seen = await context.observe([Rude("a\ud800b")])
    seen.values["rude"].encode()
