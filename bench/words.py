"""What is said in the turn that benchmarks measure: the same prompt, the same 200 tokens and the same call for every side.

The peers' environments hold nothing of ours, so the standard library must do here.
"""

from collections.abc import AsyncIterator

PROMPT = "Refund order 7"
INSTRUCTIONS = "Be kind."
TOKENS = 200
WORDS = "word " * TOKENS
CALL: dict[str, object] = {"order": "7", "cents": 5}


async def stream() -> AsyncIterator[str]:
    """The model's answer, token by token and without latency."""
    for _ in range(TOKENS):
        yield "word "


async def answer() -> str:
    """The answer as a model hands it over when nobody listens to its stream."""
    return "".join([token async for token in stream()])
