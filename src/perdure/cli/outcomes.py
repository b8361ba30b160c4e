"""What became of a prompt, as an exit code and in words."""

from __future__ import annotations

from perdure.core import answers, messages

SUCCEEDED, FAILED, MISUSED, INTERRUPTED, WAITING, WITHDRAWN, TIMED_OUT, CTRL_C = 0, 1, 2, 3, 4, 5, 6, 130

_CODES: dict[messages.Outcome, int] = {
    "succeeded": SUCCEEDED,
    "failed": FAILED,
    "interrupted": INTERRUPTED,
    "cancelled": WITHDRAWN,
    "superseded": WITHDRAWN,
}


def code_of(receipt: answers.Receipt) -> int:
    """The exit code of a prompt; one that is not settled is still under way."""
    return TIMED_OUT if receipt.outcome is None else _CODES[receipt.outcome]


def failure(receipt: answers.Receipt) -> str:
    """Why a prompt has no answer, in a sentence."""
    if receipt.error is not None:
        return f"{receipt.error.type}: {receipt.error.message}"
    return f"the prompt was {receipt.outcome}" if receipt.outcome != "failed" else "the prompt failed"
