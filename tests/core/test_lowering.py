"""Lowering is kept per settled message: the same words, for the price of what is new (MSG-9)."""

import pytest

from perdure.core import events, lowering, messages, request, transcript

SPEAKER = request.Speaker("scripted", "m")
FAILURE = messages.Failure("timeout", "Too slow")
IMAGE = messages.Prompt((messages.PromptPart("image", mime="image/png", hash="h"),))


def nothing(_):
    return None


@pytest.fixture
def lowered(monkeypatch):
    """The ids of the messages that were lowered, in order."""
    seen, real = [], request.lower_message

    def spy(message, speaker, content):
        seen.append(message.id)
        return real(message, speaker, content)

    monkeypatch.setattr(request, "lower_message", spy)
    return seen


def turn(story, n):
    story.ask(f"question {n}", f"u{n}")
    story.step(f"a{n}")
    story.running("c", f"a{n}")
    story.of(events.ToolSucceeded, "c", f"a{n}")
    story.end(f"a{n}")


def test_a_draft_is_what_lowering_says_at_every_fact_msg_9(story):
    kept, of_growing = lowering.Lowering(), lowering.Lowering()
    growing = transcript.Builder(transcript.Transcript())

    def agree():
        for event in story.told:
            growing.apply(event)
        lowered = request.lower(story.transcript, SPEAKER, nothing)
        for draft in (kept.draft(story.transcript, SPEAKER), of_growing.draft(growing, SPEAKER)):
            assert (draft.fill(nothing), draft.problem) == (lowered, None)

    for n in range(3):
        turn(story, n)
        agree()
    story.ask(IMAGE, "img")
    story.step("open")
    story.think("hm", amid="open", metadata={"signature": "s"})
    agree()
    story.tell(events.CompactionStarted, message_id="k", reason="auto")
    agree()
    story.say("more", amid="open")
    agree()
    story.tell(events.CompactionEnded, message_id="k", summary="all", recent="u2")
    agree()
    story.end("open")
    story.step("next")
    agree()


def test_a_settled_message_is_lowered_once_msg_9(story, lowered):
    kept = lowering.Lowering()
    for n in range(4):
        turn(story, n)
        kept.draft(story.transcript, SPEAKER)
    assert lowered == [name for n in range(4) for name in (f"u{n}", f"a{n}")]


def test_an_open_assistant_is_lowered_again_until_it_is_complete_msg_9(story, lowered):
    kept = lowering.Lowering()
    turn(story, 0)
    story.step("open")
    for _ in range(2):
        kept.draft(story.transcript, SPEAKER)
    story.end("open")
    for _ in range(2):
        kept.draft(story.transcript, SPEAKER)
    assert lowered == ["u0", "a0", "open", "open", "open"]


def test_another_speaker_is_spoken_to_anew_msg_9(story, lowered):
    kept = lowering.Lowering()
    story.step()
    story.think("hm", metadata={"signature": "s"})
    story.end()
    first = kept.draft(story.transcript, SPEAKER).messages
    other = kept.draft(story.transcript, request.Speaker("other", "m")).messages
    assert first[0].content == (request.ReasoningContent("hm", {"signature": "s"}),)
    assert other[0].content == (request.TextContent("hm"),)
    assert lowered == ["a", "a"]


def test_another_transcript_is_lowered_from_its_beginning_msg_9(story, story_of):
    kept = lowering.Lowering()
    turn(story, 0)
    kept.draft(story.transcript, SPEAKER)
    other = story_of()
    turn(other, 7)
    assert kept.draft(other.transcript, SPEAKER).messages == request.lower(other.transcript, SPEAKER, nothing)


def test_bytes_are_asked_for_each_time_and_never_kept(story):
    kept = lowering.Lowering()
    story.ask("see", "u0")
    story.ask(IMAGE, "u1")
    for data in (b"1", b"2"):
        draft = kept.draft(story.transcript, SPEAKER)
        assert draft.hashes == {"h"}
        assert draft.fill({"h": data}.get)[1].content == (request.MediaContent("image", "image/png", data),)
    assert b"1" not in repr(kept._front).encode()


def fail(story, amid, error):
    story.tell(events.StepFailed, assistant_message_id=amid, error=error)


REFUSED = messages.Failure("invalid_request", "The image is too large")


def test_what_a_model_refused_is_left_out_once_another_prompt_came_msg_9(story):
    kept = lowering.Lowering()

    def sent(speaker=SPEAKER):
        draft = kept.draft(story.transcript, speaker)
        assert draft.fill({"h": b"1"}.get) == request.lower(story.transcript, speaker, {"h": b"1"}.get)
        assert bool(draft.hashes) == any("MediaContent" in repr(one) for one in draft.fill({"h": b"1"}.get))
        return bool(draft.hashes)

    story.ask(IMAGE, "u0")
    story.step("a0")
    assert sent()
    fail(story, "a0", REFUSED)
    assert sent(), "whoever runs the same prompt again means it"
    story.ask("and this?", "u1")
    assert not sent()
    assert sent(request.Speaker("scripted", "with eyes")), "another model may take it"
    story.step("a1")
    story.say("fine", amid="a1")
    story.end("a1")
    story.ask("more", "u2")
    assert not sent()
    story.ask(IMAGE, "u3")
    assert sent(), "each prompt stands for itself"
    assert "no longer available" in repr(request.lower(story.transcript, SPEAKER, {"h": b"1"}.get)[0])


@pytest.mark.parametrize("error", [messages.Failure("auth", "No"), messages.Failure("server", "Down"), None])
def test_what_was_taken_or_failed_otherwise_stays_msg_9(story, error):
    story.ask(IMAGE, "u0")
    story.step("a0")
    fail(story, "a0", error) if error else story.end("a0")
    story.ask("and now?", "u1")
    story.step("a1")
    fail(story, "a1", REFUSED)
    story.ask("and now?", "u2")
    assert lowering.Lowering().draft(story.transcript, SPEAKER).hashes == ({"h"} if error is None else set())


def test_a_broken_pair_is_found_each_time_and_never_kept_msg_9(story, monkeypatch):
    monkeypatch.setattr(request, "_result", lambda part: request.ResultMessage("nobody", part.name, ""))
    kept = lowering.Lowering()
    turn(story, 0)
    for _ in range(2):
        assert kept.draft(story.transcript, SPEAKER).problem == "Result of nobody stands where no call asks for it"
