"""Every error has a status, and none of them tells more than it should."""

import inspect
import logging

import pytest

from perdure import errors
from perdure.server import problems


def every_error():
    return [one for _, one in inspect.getmembers(errors, inspect.isclass) if issubclass(one, errors.PerdureError)]


@pytest.mark.parametrize("kind", every_error())
def test_every_error_class_has_a_row_of_its_own_or_an_ancestors(kind):
    nearest = next(one for one in kind.__mro__ if one in problems.STATUS)
    assert problems.status_of(kind) == problems.STATUS[nearest]
    assert nearest is not errors.PerdureError or kind is errors.PerdureError, "only the root itself falls to the root"


def test_the_table_has_no_row_for_what_is_no_error_of_ours():
    assert set(problems.STATUS) <= set(every_error())


@pytest.mark.parametrize("kind", every_error())
def test_an_error_has_a_stable_type_of_its_own_and_says_what_to_do(kind):
    assert kind.remedy
    assert [one for one in every_error() if one.type == kind.type] == [kind]


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (errors.InvalidId, 422),
        (errors.MalformedJson, 400),
        (errors.TooLarge, 413),
        (errors.Unauthorized, 401),
        (errors.Forbidden, 403),
        (errors.PromptNotFound, 404),
        (errors.SessionGone, 410),
        (errors.PromptConflict, 409),
        (errors.StoreBusy, 503),
        (errors.StoreFull, 507),
        (errors.MessageUndecodable, 500),
        (errors.IllegalTransition, 500),
    ],
)
def test_the_statuses_that_clients_rely_on(kind, status):
    assert problems.status_of(kind) == status


async def test_an_exception_nobody_foresaw_is_a_500_that_tells_nothing_and_is_logged(served, caplog):
    async def broken(*_):
        raise RuntimeError("the secret of the house")

    served.perdure.engine.store.read = broken
    with caplog.at_level(logging.ERROR):
        done = await served.client.get("/v1/recoveries")
    assert (done.status_code, done.headers["content-type"]) == (500, "application/problem+json")
    assert done.json()["type"] == "unexpected"
    assert "secret" not in done.text
    assert "Traceback" not in done.text
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["the secret of the house"]


async def test_an_error_inside_a_stream_is_told_in_the_stream(served):
    await served.session()
    await served.perdure.engine.store.write(lambda tx: tx.events.put_sequence("s", 5, None))

    async def broken(aggregate_id, after, end, page):
        raise errors.Undecodable("Not a stored event: of the test")
        yield

    served.perdure.engine.log._pages = broken
    async with served.reader() as reader:
        found = await reader.rest()
    assert [one.event for one in found] == ["hello", "problem"]
    assert found[1].data["type"] == "undecodable"
