"""The app that `perdure demo` serves and kills.

Lives here: the agent `support` on a model whose address the environment gives, and the writer's gate as the engine's
probe. Not here: what the tool does (`shop.py`). Everything else is as in any app.
"""

from __future__ import annotations

from perdure import agent
from perdure.cli.demo import shop
from perdure.engine import engine, perdure

INSTRUCTIONS = "You help customers of a shop. You may refund orders, each of them once."

app = perdure.Perdure(
    agents=[agent.Agent("support", model="openai:demo", instructions=INSTRUCTIONS, tools=[shop.refund])],
    world=engine.World(probe=shop.hold_writer),
)
