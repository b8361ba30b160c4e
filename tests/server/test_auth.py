"""Who may call, and under which name (SEC-1)."""

import logging
import os
import stat

import pytest

from perdure import Perdure, config, errors
from perdure.server import app as server
from perdure.server import auth, cookies

pytestmark = pytest.mark.usefixtures("own_state")


@pytest.fixture
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("PERDURE_TOKEN", raising=False)
    return tmp_path / "state" / "perdure" / "token"


# -- the token -------------------------------------------------------------------------------------------------------------


def test_a_generated_token_is_kept_for_its_owner_alone_and_found_again_sec_1(own_state):
    first = auth.credential(config.settings())
    assert first.file == own_state
    assert stat.S_IMODE(own_state.stat().st_mode) == 0o600
    assert len(first.token) >= 40
    assert auth.credential(config.settings()).token == first.token
    assert [one.name for one in own_state.parent.iterdir()] == ["token"]


def test_a_configured_token_makes_no_file_sec_1(own_state):
    assert auth.credential(config.settings(token="given")) == auth.Credential("given")
    assert not own_state.exists()


def test_a_token_never_shows_in_a_repr_sec_1():
    assert "given" not in repr(auth.Credential("given"))
    assert "given" not in repr(config.settings(token="given"))


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_token_file_that_others_can_read_is_refused_sec_1(own_state, mode):
    auth.credential(config.settings())
    own_state.chmod(mode)
    with pytest.raises(errors.ConfigError, match="can be read by others"):
        auth.credential(config.settings())


def test_a_token_file_that_is_a_link_or_empty_is_refused_sec_1(own_state, tmp_path):
    own_state.parent.mkdir(parents=True)
    own_state.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(errors.ConfigError, match="cannot be used"):
        auth.credential(config.settings())
    own_state.unlink()
    os.close(os.open(own_state, os.O_CREAT | os.O_WRONLY, 0o600))
    with pytest.raises(errors.ConfigError, match="empty"):
        auth.credential(config.settings())


@pytest.mark.parametrize("token", ["", "two words", "ünï", "a\nb"])
def test_a_token_that_no_header_can_carry_is_refused(token):
    with pytest.raises(errors.ConfigError, match="PERDURE_TOKEN"):
        auth.credential(config.settings(token=token))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.org", ""])
def test_a_wider_bind_without_a_configured_token_refuses_to_start_sec_1(host, own_state):
    with pytest.raises(errors.ConfigError, match="set PERDURE_TOKEN"):
        auth.credential(config.settings(host=host))
    assert not own_state.exists()
    assert auth.credential(config.settings(host=host, token="given")).token == "given"


def test_an_app_of_a_wider_bind_is_not_even_made_without_a_token_sec_1():
    with pytest.raises(errors.ConfigError, match="set PERDURE_TOKEN"):
        server.create_app(Perdure(), config.settings(host="0.0.0.0"))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_is_loopback_by_any_name(host):
    assert auth.is_loopback(host)


async def test_any_server_that_knows_lifespans_can_run_the_app(tmp_path):
    app = server.create_app(Perdure(database=str(tmp_path / "p.db")), token="given")
    said, asked = [], iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive():
        return next(asked)

    async def send(message):
        said.append(message["type"])

    await app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send)
    assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


# -- the check -------------------------------------------------------------------------------------------------------------


async def test_without_the_token_only_health_answers_sec_1(served):
    for given in [None, "Bearer wrong", "Bearer", "Basic YTpi", "a-token-of-the-tests", "Bearer a-token-of-the-testsx"]:
        headers = {"Authorization": given or ""}
        for path in ["/v1/sessions", "/v1/sessions/none", "/v1/nowhere", "/openapi.json", "/docs", "/v1/recoveries"]:
            done = await served.client.get(path, headers=headers)
            assert (done.status_code, done.json()["type"]) == (401, "unauthorized"), (given, path)
            assert done.headers["WWW-Authenticate"] == "Bearer"
        assert (await served.client.get("/health", headers=headers)).status_code == 200
    assert (await served.client.get("/v1/sessions")).status_code == 200


async def test_a_token_in_the_url_is_no_token_sec_1(served):
    done = await served.client.get("/v1/sessions?token=a-token-of-the-tests", headers={"Authorization": ""})
    assert done.status_code == 401


async def test_health_says_version_and_epoch_without_a_token(served):
    done = (await served.client.get("/health", headers={"Authorization": ""})).json()
    assert (done["status"], set(done)) == ("ok", {"status", "version", "epoch"})


async def test_a_host_of_another_name_is_refused_before_anything_else_sec_1(served):
    for host in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", ""]:
        for path in ["/health", "/v1/sessions"]:
            done = await served.client.get(path, headers={"Host": host, "Authorization": ""})
            assert (done.status_code, done.json()["type"]) == (403, "forbidden"), (host, path)
    for host in ["localhost", "LOCALHOST:9", "127.0.0.1", "[::1]:7433", "10.0.0.1:1"]:
        assert (await served.client.get("/health", headers={"Host": host})).status_code == 200, host


def guard_of(allowed_hosts):
    return auth.Guard(config.settings(allowed_hosts=allowed_hosts), "x", cookies.Cookies("x", lambda: 0))


def test_more_names_can_be_allowed_sec_1():
    guard = guard_of("perdure.example, Other.example")
    guard.check_host([(b"host", b"perdure.example:443")])
    guard.check_host([(b"host", b"other.EXAMPLE")])
    with pytest.raises(errors.Forbidden, match=r"third\.example"):
        guard.check_host([(b"host", b"third.example")])
    guard_of("*").check_host([(b"host", b"third.example")])


async def test_a_page_of_another_origin_gets_no_permission_sec_1(served):
    headers = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    asked = await served.client.options("/v1/sessions", headers=headers)
    assert asked.status_code == 405
    answered = await served.client.get("/v1/sessions", headers=headers)
    assert [name for name in [*asked.headers, *answered.headers] if name.startswith("access-control")] == []


async def test_the_token_is_never_logged_sec_1(served, caplog):
    with caplog.at_level(logging.DEBUG):
        await served.session()
        await served.client.get("/v1/nowhere")
        await served.client.post("/v1/sessions", content=b"{")
        await served.client.get("/v1/sessions", headers={"Authorization": "Bearer wrong-token"})
    ours = [record.getMessage() + str(vars(record)) for record in caplog.records if not record.name.startswith("http")]
    assert [line for line in ours if "a-token-of-the-tests" in line or "wrong-token" in line] == []
