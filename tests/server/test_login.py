"""A page logs in with the token and goes on with a cookie (SEC-1)."""

import httpx2
import pytest

from perdure.server.cookies import LIFETIME_MS, Cookies

TOKEN = "a-token-of-the-tests"


@pytest.fixture
async def page(served):
    """A browser's page of the server, which is not logged in."""
    browser = {"Sec-Fetch-Site": "same-origin", "Origin": served.url}
    async with httpx2.AsyncClient(base_url=served.url, headers=browser, trust_env=False) as client:
        yield client


async def log_in(page, **headers):
    done = await page.post("/v1/login", json={"token": TOKEN}, headers=headers)
    assert done.status_code == 204, done.text
    return done


async def test_a_page_logs_in_works_with_the_cookie_and_logs_out_sec_1(page):
    assert (await page.get("/v1/sessions")).status_code == 401
    await log_in(page)
    assert (await page.get("/v1/sessions")).status_code == 200
    assert (await page.post("/v1/sessions", json={"id": "s"})).status_code == 201
    assert (await page.patch("/v1/sessions/s", json={"title": "T"})).status_code == 200
    assert (await page.delete("/v1/sessions/s")).status_code == 204
    assert (await page.post("/v1/logout")).status_code == 204
    assert (await page.get("/v1/sessions")).status_code == 401


async def test_the_cookie_is_for_no_script_no_other_site_and_over_https_for_https_only_sec_1(page):
    plain = (await log_in(page)).headers["Set-Cookie"]
    assert TOKEN not in plain
    _, *about = plain.split("; ")
    assert about == ["Path=/", f"Max-Age={LIFETIME_MS // 1000}", "HttpOnly", "SameSite=Strict"]
    secure = (await log_in(page, **{"X-Forwarded-Proto": "https"})).headers["Set-Cookie"]
    assert secure.split("; ")[-1] == "Secure"


async def test_an_event_stream_works_with_the_cookie_sec_1(served, page):
    await served.session()
    await log_in(page)
    for path in ("/v1/sessions/s/events", "/v1/events"):
        headers = {"Accept": "text/event-stream"}
        async with page.stream("GET", path, headers=headers, params={"follow": "false"}) as answer:
            assert answer.status_code == 200
            assert b"event: synced" in await answer.aread()


@pytest.mark.parametrize("token", ["", "wrong", TOKEN + "x", "ünï", "x" * 1001])
async def test_another_token_logs_nobody_in_sec_1(page, token, caplog):
    done = await page.post("/v1/login", json={"token": token})
    assert done.status_code == (422 if len(token) > 1000 else 401)
    assert "Set-Cookie" not in done.headers
    assert not token or token not in done.text
    assert not token or token not in caplog.text


FOREIGN = [
    {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"},
    {"Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-site"},
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": ""},
]


async def test_a_page_of_another_origin_can_do_nothing_with_the_cookie_sec_1(served, page):
    await log_in(page)
    cookie = "; ".join(f"{name}={value}" for name, value in page.cookies.items())
    async with httpx2.AsyncClient(base_url=served.url, headers={"Cookie": cookie}, trust_env=False) as other:
        for headers in FOREIGN:
            for method in ("POST", "PUT", "PATCH", "DELETE"):
                done = await other.request(method, "/v1/sessions", json={}, headers=headers)
                assert (done.status_code, done.json()["type"]) == (403, "forbidden"), (method, headers)
        for headers in FOREIGN[:2]:
            assert (await other.get("/v1/sessions", headers=headers)).status_code == 403, headers
        assert (await other.post("/v1/sessions", json={})).status_code == 403, "nobody's page"
        assert (await other.get("/v1/sessions")).status_code == 200
    assert (await served.client.get("/v1/sessions")).json() == {"data": []}


async def test_a_bearer_token_needs_no_origin_and_a_wrong_one_is_not_saved_by_a_cookie_sec_1(served, page):
    foreign = {"Origin": "http://evil.example"}
    assert (await served.client.post("/v1/sessions", json={}, headers=foreign)).status_code == 201
    await log_in(page)
    assert (await page.get("/v1/sessions", headers={"Authorization": "Bearer wrong"})).status_code == 401


async def test_a_page_of_another_origin_cannot_log_a_browser_in_sec_1(page):
    for headers in FOREIGN:
        done = await page.post("/v1/login", json={"token": TOKEN}, headers=headers)
        assert (done.status_code, "Set-Cookie" in done.headers) == (403, False), headers


def value_of(set_cookie):
    return set_cookie.partition(";")[0].encode()


def test_a_cookie_holds_until_its_time_for_its_token_only_and_unchanged_sec_1():
    now = [1_000]
    ours, theirs = Cookies("one", lambda: now[0]), Cookies("two", lambda: now[0])
    cookie = value_of(ours.write(secure=False))
    assert ours.holds(b"a=b; " + cookie + b" ; c")
    assert not theirs.holds(cookie)
    assert not theirs.holds(cookie.replace(ours.name.encode(), theirs.name.encode()))
    longer = cookie.replace(b"=%d." % (LIFETIME_MS + 1_000), b"=%d." % (LIFETIME_MS + 9_000))
    assert longer != cookie
    for broken in (longer, cookie[:-1], cookie + b"0", ours.name.encode() + b"=", b"", b"\xff=;;=", cookie[:40]):
        assert not ours.holds(broken), broken
    now[0] += LIFETIME_MS
    assert not ours.holds(cookie)
    assert value_of(ours.write(secure=False)) != value_of(ours.write(secure=False))


def test_a_cookie_outlives_the_server_that_gave_it_sec_1():
    cookie = value_of(Cookies("one", lambda: 0).write(secure=True))
    assert Cookies("one", lambda: 5).holds(cookie)
