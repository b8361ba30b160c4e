"""What every test shares: one async backend, examples without a time limit, and the rule that a required capability is never
silently absent.

Fixtures of one room live in the conftest beside that room's tests.
"""

import os
from collections.abc import Generator

import hypothesis
import pytest

# How long an example takes says what else the machine does.
hypothesis.settings.register_profile("tests", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("tests")

CAPABILITIES = {"browser", "node", "postgres"}


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


def required() -> set[str]:
    """The capabilities that PERDURE_REQUIRE, a list with commas, says must be there."""
    return CAPABILITIES & set(os.environ.get("PERDURE_REQUIRE", "").split(","))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn the skip of a test that needs a required capability into a failure."""
    report = yield
    lacking = required() & {mark.name for mark in item.iter_markers()}
    if report.skipped and lacking and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr
        report.longrepr = f"PERDURE_REQUIRE names {', '.join(sorted(lacking))}, yet: {reason}"
    return report
