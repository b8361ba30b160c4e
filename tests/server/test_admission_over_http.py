"""Many clients at once: what is accepted is there once, what is refused says why, and nobody hears of another's session."""

import asyncio

from perdure.core import events


async def sent(served, body, session_id="s"):
    return await served.client.post(f"/v1/sessions/{session_id}/prompts", json=body)


async def test_twenty_sends_of_one_id_at_once_are_one_prompt_with_one_turn_in_2_in_3(served, model):
    await served.session()
    answers = await asyncio.gather(*(sent(served, {"id": "p", "text": "hi"}) for _ in range(20)))
    assert {one.status_code for one in answers} == {202}
    assert {(one.json()["id"], one.json()["admitted_seq"]) for one in answers} == {("p", 1)}
    await served.settle("p")
    late = (await sent(served, {"id": "p", "text": "hi"})).json()
    assert (late["state"], late["outcome"]) == ("settled", "succeeded")
    page = (await served.client.get("/v1/sessions/s/messages")).json()["data"]
    assert [one["type"] for one in page] == ["user", "assistant"]
    assert len(model.requests) == 1


async def test_all_that_came_was_admitted_or_refused_with_a_reason_in_1_in_10(served):
    await served.session()
    await served.session("gone")
    await served.client.delete("/v1/sessions/gone")
    bodies = [
        *[("s", {"id": f"p{n}", "text": "hi", "delivery": "queue"}) for n in range(10)],
        *[("s", {"id": f"p{n}", "text": "hi", "delivery": "queue"}) for n in range(10)],
        *[("s", {"id": "p0", "text": "other"}), ("s", {"id": "..", "text": "hi"}), ("s", {"id": "q", "text": ""})],
        *[("s", {"text": 1}), ("nobody", {"text": "hi"}), ("gone", {"text": "hi"})],
    ]
    answers = await asyncio.gather(*(sent(served, body, session_id) for session_id, body in bodies))
    accepted = [one.json()["id"] for one in answers if one.status_code == 202]
    refused = [one.json()["type"] for one in answers if one.status_code != 202]
    assert len(accepted) + len(refused) == len(bodies)
    assert sorted(refused) == sorted(
        ["prompt-conflict", "invalid-id", "invalid-input", "invalid-input", "session-not-found", "session-gone"]
    )
    assert set(accepted) == {f"p{n}" for n in range(10)}
    for message_id in set(accepted):
        await served.settle(message_id)
    log = await served.perdure.engine.log.read("s", limit=1000)
    admitted = [one.data.message_id for one in log if isinstance(one.data, events.PromptAdmitted)]
    assert sorted(admitted) == sorted(set(accepted))


async def test_a_streams_reader_gets_nothing_of_another_session_whatever_cursor_it_brings_api_1(served):
    for name in ("s", "other"):
        await served.session(name)
    async with served.reader("s") as reader:
        await reader.until("synced")
        for name in ("other", "s"):
            await served.prompt(id=f"p-{name}", session_id=name)
            await served.settle(f"p-{name}", name)
        live = await reader.until("session.execution.ended")
    about = [one.data["data"]["session_id"] for one in live if one.event and one.event.startswith("session.")]
    assert set(about) == {"s"}
    cursor = live[-1].id
    assert cursor is not None
    async with served.reader("other", headers={"Last-Event-ID": str(int(cursor) - 2)}) as reader:
        rest = await reader.until("synced")
    assert [one.data["durable"] for one in rest if one.id] == [
        {"aggregate_id": "other", "seq": int(cursor) - n, "version": 1} for n in (1, 0)
    ]


async def test_changes_of_different_fields_at_once_all_stand_msg_1(served):
    await served.session()
    changes = [{"title": "T"}, {"metadata": {"a": 1}}, {"archived": True}, {"policy": {"max_steps": 3}}]
    done = await asyncio.gather(*(served.client.patch("/v1/sessions/s", json=one) for one in changes))
    assert {one.status_code for one in done} == {200}
    found = (await served.client.get("/v1/sessions/s")).json()
    assert (found["title"], found["metadata"], found["archived"]) == ("T", {"a": 1}, True)
    assert found["policy"]["max_steps"] == 3
