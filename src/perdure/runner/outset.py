"""A turn that begins in the very commit that admits its prompt and takes the claim.

Lives here: `Outset`, which adds to that unit what else would be a commit of its own: promotion and the start of the first
step, wherever nothing has to be asked or read before. Not here: what that is (`boundary.py`), the claim, handing it to a
drain (`engine/engine.py`). Whatever stands in the way leaves the turn to its drain, which begins it as it always could and
knows how to fail it; so it never keeps a prompt out.
"""

from __future__ import annotations

from perdure import errors, telemetry
from perdure.core import transcript
from perdure.log.unit import Unit
from perdure.runner import boundary, endings
from perdure.runner.turn import Handed, Parts, Turn
from perdure.session import claims, context
from perdure.store.sessions import SessionRow


class NotBegun(Exception):
    """The turn could not begin here: nothing of the unit is kept, and it is to run again without."""


class Outset:
    """An attempt to take a session's claim and to begin its turn, inside a unit that may run more than once: its last run
    counts.
    """

    __slots__ = ("_ending", "_history", "_ids", "_parts", "_taking", "_turn")

    def __init__(self, parts: Parts, session_id: str) -> None:
        """Gather, on the loop, what the unit goes by."""
        self._parts, self._taking = parts, parts.claims.taking(session_id)
        self._ids = parts.mint("msg"), parts.mint("msg"), parts.mint("msg")
        known = any(one.agent.context_tokens or parts.window(one.agent.model_name) for one in parts.agents.values())
        self._history = parts.histories.at_hand(session_id) if known else None
        self.reset()

    def stands(self, unit: Unit) -> bool:
        """Whether this unit ran before and its commit took place, though nobody was told."""
        claim = unit.tx.claims.of_session(self._taking.held.session_id)
        return claim is not None and claim.id == self._taking.held.execution_id

    def reset(self) -> None:
        """The unit runs, perhaps not for the first time."""
        self._taking.taken = claims.Taken()
        self._turn: Turn | None = None
        self._ending: endings.Ending | None = None

    def run(self, unit: Unit, *, begin: bool) -> None:
        """Take the claim if something is eligible and nobody has it; with `begin` also begin. Raises `NotBegun`."""
        taken = self._taking.run(unit)
        if not (begin and taken.attempt and taken.session and telemetry.unheard()):
            return
        try:
            self._begin(unit, taken.session)
        except Exception as error:
            raise NotBegun from error

    def _begin(self, unit: Unit, session: SessionRow) -> None:
        parts, held = self._parts, self._taking.held
        ready, claim = parts.agents.get(session.agent), unit.tx.claims.of_session(session.id)
        if ready is None or ready.model is None or claim is None or session.model or session.parked:
            return
        message_id, note_id, summary_id = self._ids
        turn = Turn(parts, held, ready, ready.model, ready.agent.model_name, message_id, session)
        seen, history = context.fixed(ready.sources), self._history_for(turn, unit)
        if seen is None or history is None:
            return
        ending = self._ending = endings.Ending(held, held.execution_id, held.attempt)
        ending.stay()
        outlook = boundary.Outlook(history, seen, note_id, summary_id)
        if boundary.open_turn(unit, claim, turn, outlook, ending):
            self._turn = turn

    def _history_for(self, turn: Turn, unit: Unit) -> transcript.Transcript | None:
        """What may be too long for the model's window, as far as the log goes; None where it is not at hand."""
        if turn.limit is None:
            return transcript.Transcript()
        before = unit.appended[0].seq if unit.appended else self._taking.taken.seq + 1
        return self._history if self._history and self._history.seq == before - 1 else None

    def handed(self) -> Handed | None:
        """What a drain is to start with, once the unit is committed; None where there is nothing to run."""
        held = self._taking.won()
        if held and self._ending:
            self._ending.take_effect()
        return Handed(held, self._turn) if held and held.open else None

    @property
    def taken(self) -> bool:
        """Whether the claim was taken, in the unit's last run."""
        return self._taking.taken.attempt > 0


async def take_up(turn: Turn) -> Turn:
    """The turn, once its transcript is there and its drain may run it. Raises `Interrupted`, `ClaimLost`."""
    parts, held = turn.parts, turn.held
    if held.marked:
        raise claims.Interrupted
    if not parts.claims.trusts(held):  # it waited long for a slot
        raise errors.ClaimLost
    await parts.histories.current(held.session_id, held.seq)
    parts.blocked.pop(held.session_id, None)
    return turn
