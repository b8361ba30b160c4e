"""A session of a server, with the verbs of the embedded one.

Lives here: one method a verb, saying which request it is and whether that may be sent twice. Not here: sending it.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

from perdure import ids
from perdure.client import following, wire
from perdure.client.transport import Backoff, Transport
from perdure.core import answers, events, messages

WAIT_S = 30.0
"""How long one request waits; a longer wait is several of them."""


class Session:
    """One session. Cheap: an id and the connection."""

    def __init__(self, transport: Transport, session_id: str) -> None:
        """Use `Sessions.create` or `Sessions.get`."""
        self._transport, self.id = transport, session_id
        self._path = f"/v1/sessions/{session_id}"

    async def info(self) -> wire.SessionInfo:
        """Its settings, its totals and what it is doing."""
        return (await self._transport.get(self._path, wire.SessionView)).info()

    async def update(
        self, changes: events.Changes, *, agent: str | None = None, model: str | None = None
    ) -> wire.SessionInfo:
        """Change title, metadata, archived or policy, and who answers from the next step on, all in one commit.

        Raises `UnknownAgent`, `UnknownModel`, `SessionNotFound`, `SessionGone`, `InvalidInput`.
        """
        body = wire.given(
            title=changes.title,
            metadata=changes.metadata,
            archived=changes.archived,
            policy=changes.policy,
            agent=agent,
            model=model,
        )
        return (await self._transport.call("PATCH", self._path, wire.SessionView, body, safe=True)).info()

    async def switch_agent(self, agent: str) -> None:
        """Let another agent answer from the next step on. Raises `UnknownAgent`."""
        await self.update(events.Changes(), agent=agent)

    async def switch_model(self, model: str) -> None:
        """Let another model answer from the next step on. Raises `UnknownModel`."""
        await self.update(events.Changes(), model=model)

    async def fork(self, *, id: str | None = None, seq: int | None = None) -> Session:
        """A new session with this one's facts up to `seq`. Raises `CursorBeyondEnd`, `SessionConflict`."""
        body = wire.given(id=id or ids.mint("ses", os.urandom), seq=seq)
        view = await self._transport.call("POST", f"{self._path}/fork", wire.SessionView, body)
        return Session(self._transport, view.id)

    async def delete(self) -> None:
        """Delete it for good, also while it runs. Raises `SessionNotFound`, `SessionGone`."""
        await self._transport.send("DELETE", self._path)

    # -- prompts -----------------------------------------------------------------------------------------------------------

    async def prompt(
        self,
        prompt: str | Sequence[Any],
        *,
        id: str | None = None,
        delivery: messages.Delivery = "steer",
        resume: bool = True,
    ) -> answers.Receipt:
        """Admit a prompt, text or parts; it is durable when this returns, and safe to send again under the same `id`.

        Without one an id is made here, so that the request may go again while the server is away. Raises
        `PromptConflict` for another prompt under that id, `InvalidId`, `InvalidInput`, `SessionNotFound`, `SessionGone`.
        """
        body: dict[str, Any] = {"id": id or ids.mint("msg", os.urandom), "delivery": delivery, "resume": resume}
        if isinstance(prompt, str):
            body["text"] = prompt
        else:
            body["parts"] = [wire.part(one) for one in prompt]
        return await self._transport.call("POST", f"{self._path}/prompts", answers.Receipt, body, safe=True)

    async def receipt(self, message_id: str) -> answers.Receipt:
        """What became of a prompt. Raises `PromptNotFound`, `SessionNotFound`."""
        return await self._transport.get(self._prompt(message_id), answers.Receipt)

    async def inbox(self) -> list[wire.InputInfo]:
        """Inputs that wait, in admission order."""
        return wire.inputs(self.id, await self._transport.get(f"{self._path}/inbox", wire.InputList))

    async def cancel(self, message_id: str) -> answers.Receipt:
        """Withdraw a waiting prompt. Raises `PromptNotFound`, `LifecycleConflict`."""
        return await self._transport.call("DELETE", self._prompt(message_id), answers.Receipt)

    async def change_delivery(self, message_id: str, delivery: messages.Delivery) -> answers.Receipt:
        """Deliver a waiting prompt otherwise. Raises `PromptNotFound`, `LifecycleConflict`."""
        body = {"delivery": delivery}
        return await self._transport.call("PATCH", self._prompt(message_id), answers.Receipt, body)

    async def retry(self, message_id: str) -> answers.Receipt:
        """Run a failed or interrupted prompt again. Raises `PromptNotFound`, `LifecycleConflict`."""
        return await self._transport.call("POST", f"{self._prompt(message_id)}/retry", answers.Receipt)

    def _prompt(self, message_id: str) -> str:
        return f"{self._path}/prompts/{ids.check_shape('Prompt id', message_id)}"

    # -- control -----------------------------------------------------------------------------------------------------------

    async def resume(self) -> None:
        """Run whatever waits, a recovery that awaits a decision included."""
        await self._transport.send("POST", f"{self._path}/resume", safe=True)

    async def interrupt(self, reason: str = "interrupt") -> bool:
        """Stop the open turn for good; whether there was one. Waiting inputs stay."""
        body = {"reason": reason}
        done = await self._transport.call("POST", f"{self._path}/interrupt", wire.Interrupted, body)
        return done.interrupted

    async def decide(
        self,
        call_id: str,
        decision: messages.Decision,
        *,
        by: str = "user",
        note: str | None = None,
        message_id: str | None = None,
    ) -> wire.ApprovalInfo:
        """Approve or deny a call that waits; `message_id`, of its row, tells it from a later call of the same id.

        Only with it the decision is sent again where the connection broke before the answer. The server writes down who
        decided; `by` is the embedded engine's word and not sent. Raises `ApprovalNotFound`, `AlreadyDecided`.
        """
        del by
        body = wire.given(decision=decision, note=note, message_id=message_id)
        path = f"{self._path}/approvals/{quote(call_id, safe='')}"
        return await self._transport.call("POST", path, wire.ApprovalInfo, body, safe=message_id is not None)

    async def approvals(self) -> list[wire.ApprovalInfo]:
        """Calls of this session that wait for a person."""
        found = await self._transport.get("/v1/approvals", wire.ApprovalList)
        return [one for one in found.data if one.session_id == self.id]

    async def attempts(self, *, after: int = -1, limit: int = 100) -> answers.AttemptPage:
        """Requests to providers that began after a seq, and what each used; the page ends between two messages."""
        return await self._transport.get(f"{self._path}/attempts", answers.AttemptPage, after=after, limit=limit)

    async def compact(self) -> str:
        """Summarise the older part of the conversation now; the compaction's id once its start is durable.

        Raises `SessionBusy`.
        """
        return (await self._transport.call("POST", f"{self._path}/compact", wire.Started)).message_id

    async def wait(self, message_id: str | None = None, *, timeout: float | None = None) -> answers.Receipt | None:
        """Wait until a prompt is settled and give its receipt; without an id, until nothing is owed in the session.

        `timeout` in seconds; on time-out the receipt as it is. Raises `PromptNotFound`, `SessionNotFound`, `SessionGone`,
        also where the session is deleted meanwhile.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        backoff = Backoff(self._transport.patience)
        while True:
            left = WAIT_S if deadline is None else max(0.0, min(WAIT_S, deadline - time.monotonic()))
            began = time.monotonic()
            body = wire.given(message_id=message_id, timeout=left)
            waited = await self._transport.call("POST", f"{self._path}/wait", wire.Waited, body, safe=True)
            if waited.done or (deadline is not None and time.monotonic() >= deadline):
                return waited.receipt
            if time.monotonic() - began < left:
                await backoff.pause("the server stops")  # it let go of us before the time
            else:
                backoff.again()

    # -- what happened -----------------------------------------------------------------------------------------------------

    async def messages(self, *, after: int = -1, before: int | None = None, limit: int = 200) -> list[messages.Message]:
        """The transcript after a seq, in order, assistants with their parts; with `before` the last of it before that seq."""
        query = {"after": after, "before": before, "limit": limit}
        page = await self._transport.get(f"{self._path}/messages", wire.MessagePage, **query)
        return [wire.message(self.id, raw) for raw in page.data]

    async def status(self) -> answers.Status:
        """What the session is doing."""
        return await self._transport.get(f"{self._path}/status", answers.Status)

    async def events(
        self, *, after: int = -1, follow: bool = True, signals: bool = False
    ) -> AsyncGenerator[events.Event, None]:
        """Facts after a seq, in order; with `follow` also those to come, with `signals` also live text. Close it when
        done.

        It outlives the connection and the server: each fact comes exactly once. Raises `HistoryReplaced` where the server comes
        back with another database.
        """
        path = f"{self._path}/events"
        found = (
            following.follow(self._transport, path, after, signals=signals)
            if follow
            else following.history(self._transport, path, after)
        )
        async with aclosing(found) as given:
            async for event in given:
                yield event
