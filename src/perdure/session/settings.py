"""What a session's settings may be, whoever gives them.

Lives here: refusing a title, metadata or a policy that the log could not give back or no turn could be run by. Not here:
agents and models, of which an engine knows its own, and the server's limits on size (`server/requests.py`).
"""

from __future__ import annotations

from perdure import errors
from perdure.core import codec, events, messages, text


def check(title: str | None, metadata: messages.JsonObject | None, policy: events.Policy | None) -> None:
    """Raise `InvalidInput` for what cannot be a setting."""
    codec.refuse_unlike("The title", events.Changes(title=title))
    if "\x00" in (title or ""):
        raise errors.InvalidInput("title must not contain NUL")
    _check_metadata(metadata)
    if policy is not None:
        _check_policy(policy)


def _check_metadata(metadata: object) -> None:
    if metadata is None:
        return
    if not isinstance(metadata, dict):
        raise errors.InvalidInput(f"metadata must be an object, not a {type(metadata).__name__}")
    codec.dump(metadata)
    if why := text.unlike_json(metadata):
        raise errors.InvalidInput(f"metadata cannot be kept as it is: {why}")


def _check_policy(policy: events.Policy) -> None:
    """Its types by the codec; then no number below the least with which anything could run."""
    codec.refuse_unlike("The policy", events.Changes(policy=policy))
    numbers: dict[str, tuple[float | None, int]] = {
        "recovery_budget": (policy.recovery_budget, 0),
        "recovery_max_age_ms": (policy.recovery_max_age_ms, 0),
        "max_steps": (policy.max_steps, 1),
    }
    for name, budget in (("session_budget", policy.session_budget), ("turn_budget", policy.turn_budget)):
        if budget is not None:
            values = {"tokens": budget.tokens, "cost": budget.cost, "seconds": budget.seconds, "steps": budget.steps}
            numbers |= {f"{name}.{what}": (value, 0) for what, value in values.items()}
    if policy.retry is not None:
        numbers["retry.attempts"] = (policy.retry.attempts, 1)
        numbers["retry.base_ms"] = (policy.retry.base_ms, 0)
        numbers["retry.retry_after_cap_ms"] = (policy.retry.retry_after_cap_ms, 0)
        numbers |= {f"retry.attempts_of.{kind}": (n, 1) for kind, n in (policy.retry.attempts_of or {}).items()}
        if (policy.retry.attempts_of or {}).get(errors.ModelErrorKind.QUOTA, 1) > 1:
            raise errors.InvalidInput("policy: retry.attempts_of.quota can only be 1: asking again fills no account")
        unknown = set(policy.retry.attempts_of or {}) - set(errors.ModelErrorKind)
        if unknown:
            raise errors.InvalidInput(f"policy: there is no kind of error {min(unknown)!r}")
    for name, (value, least) in numbers.items():
        if value is not None and value < least:
            raise errors.InvalidInput(f"policy: {name} must be {least} or more, not {value}")
