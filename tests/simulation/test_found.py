"""What the simulations found once, told again in a few lines: each of these was a bug of the engine.

A `Story` of the shop brings a session to a point; from there the units of the services run one after another.
"""

import shop

from perdure.core import events
from perdure.session import interruption, recovery
from perdure.testing import invariants


def test_an_interrupt_that_comes_while_a_dead_claim_is_looked_at_is_final(place):
    """EX-8, REC-2: the sweep judged the claim by a snapshot from before the mark; the recovery goes by the row."""
    story = shop.Story(place, shop.moody)
    assert story.live(crash_at=12).died

    async def race(log):
        judged = (await log.store.read(lambda tx: tx.claims.all()))[0]
        await log.transact(lambda unit: interruption.request(unit, shop.SESSION, "interrupt"))
        outcome = await log.transact(lambda unit: recovery.recover(unit, judged))
        return outcome, await invariants.left(log, shop.SESSION)

    outcome, left = story.look(race)
    assert (outcome.result, left.outcome("moody")) == ("ended", "interrupted")
    assert left.facts(events.StepRecovered) == []
    assert invariants.at_rest(left) == []
