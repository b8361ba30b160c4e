"""Sessions over HTTP: create, list, read, and what is refused."""


async def test_a_session_is_created_and_read(served):
    made = await served.client.post("/v1/sessions", json={"id": "s", "title": "T", "metadata": {"a": None, "b": [1]}})
    assert made.status_code == 201
    assert made.headers["Location"] == "/v1/sessions/s"
    read = await served.client.get("/v1/sessions/s")
    assert read.json() == made.json()
    assert read.json()["metadata"] == {"a": None, "b": [1]}
    assert (read.json()["agent"], read.json()["status"]["status"]) == ("default", "idle")


async def test_creating_again_with_the_same_settings_gives_the_session_and_with_others_a_conflict(served):
    body = {"id": "s", "title": "T"}
    first = await served.client.post("/v1/sessions", json=body)
    again = await served.client.post("/v1/sessions", json=body)
    other = await served.client.post("/v1/sessions", json={**body, "title": "U"})
    assert (again.status_code, again.json()) == (201, first.json())
    assert (other.status_code, other.json()["type"]) == (409, "session-conflict")


async def test_a_session_without_an_id_gets_one(served):
    one, two = [(await served.client.post("/v1/sessions", json={})).json()["id"] for _ in range(2)]
    assert one.startswith("ses_")
    assert one != two


IMPOSSIBLE = [
    ({"agent": "nobody"}, "unknown-agent", "nobody"),
    ({"model": "nowhere:x"}, "unknown-model", "nowhere:x"),
    ({"model": "plain"}, "unknown-model", "plain"),
    ({"id": "a b"}, "invalid-id", "a b"),
    ({"id": "evt_x"}, "invalid-id", "reserved"),
    ({"id": ""}, "invalid-id", "1 to 200"),
    ({"id": "x" * 201}, "invalid-id", "1 to 200"),
    ({"colour": "red"}, "invalid-input", "colour"),
    ({"policy": {"recovery": "maybe"}}, "invalid-input", "policy.recovery"),
    ({"policy": {"x": 1}}, "invalid-input", "policy.x"),
    ({"title": 7}, "invalid-input", "title"),
    ({"title": "a\x00b"}, "invalid-input", "NUL"),
    ({"model": "openai:a\x00b"}, "invalid-input", "model"),
    ([], "invalid-input", "body"),
]


async def test_a_session_that_cannot_be_is_a_422_that_says_why(served):
    for body, kind, word in IMPOSSIBLE:
        done = await served.client.post("/v1/sessions", json=body)
        assert (done.status_code, done.json()["type"]) == (422, kind), body
        assert word in done.json()["detail"]
    assert (await served.client.get("/v1/sessions")).json() == {"data": []}


async def test_an_unknown_session_is_a_404_on_every_route_that_names_one(served):
    for method, path in [
        ("GET", ""),
        ("GET", "/messages"),
        ("GET", "/status"),
        ("GET", "/inbox"),
        ("GET", "/events"),
        ("GET", "/prompts/p"),
        ("DELETE", "/prompts/p"),
        ("POST", "/prompts/p/retry"),
        ("POST", "/interrupt"),
        ("POST", "/resume"),
        ("POST", "/wait"),
    ]:
        done = await served.client.request(method, f"/v1/sessions/none{path}")
        assert (done.status_code, done.json()["type"]) == (404, "session-not-found"), path
        assert done.headers["content-type"] == "application/problem+json"
    sent = await served.client.post("/v1/sessions/none/prompts", json={"text": "x"})
    assert sent.json()["type"] == "session-not-found"
    stream = await served.client.get("/v1/sessions/none/events", headers={"Accept": "text/event-stream"})
    assert stream.status_code == 404


async def test_a_path_that_can_be_no_id_is_a_422(served):
    assert (await served.client.get("/v1/sessions/a%00b")).json()["type"] == "invalid-id"
    await served.session()
    assert (await served.client.get("/v1/sessions/s/prompts/%20")).json()["type"] == "invalid-id"


async def test_a_list_is_paged_by_an_opaque_cursor_newest_first(served):
    for number in range(5):
        await served.session(f"s{number}")
    seen, cursor = [], None
    while True:
        query = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = (await served.client.get("/v1/sessions", params=query)).json()
        seen += [one["id"] for one in page["data"]]
        cursor = page.get("next")
        if cursor is None:
            break
        assert len(page["data"]) == 2
    assert sorted(seen) == [f"s{number}" for number in range(5)]
    created = {one["id"]: one["time"]["created"] for one in (await served.client.get("/v1/sessions")).json()["data"]}
    assert seen == sorted(seen, key=lambda one: (created[one], one), reverse=True)


async def test_a_list_can_be_narrowed_to_a_status(served):
    for number in range(3):
        await served.session(f"s{number}")
    await served.prompt(session_id="s1", resume=False)
    waiting = (await served.client.get("/v1/sessions", params={"status": "waiting"})).json()
    idle = (await served.client.get("/v1/sessions", params={"status": "idle", "limit": 2})).json()
    assert [one["id"] for one in waiting["data"]] == ["s1"]
    assert sorted(one["id"] for one in idle["data"]) == ["s0", "s2"]


async def test_a_list_knows_what_a_context_source_blocks_run_2(served):
    await served.session()
    served.perdure.engine.parts.blocked["s"] = "Context source 'notes' cannot be read"
    coordinator = served.perdure.engine.coordinator
    coordinator.has_room, coordinator.wake = lambda before=0: False, lambda _: None  # it waits to be tried again
    await served.prompt()
    read = (await served.client.get("/v1/sessions/s")).json()
    listed = (await served.client.get("/v1/sessions", params={"status": "blocked"})).json()
    assert [one["status"]["status"] for one in (read, *listed["data"])] == ["blocked", "blocked"]


NO_QUERIES = [
    {"cursor": "x"},
    {"cursor": "é"},
    {"cursor": "bWVzc2FnZXMvMQ"},  # another list's
    {"limit": 0},
    {"limit": "x"},
    {"status": "no"},
]


async def test_a_query_that_makes_no_sense_is_a_422(served):
    for query in NO_QUERIES:
        done = await served.client.get("/v1/sessions", params=query)
        assert (done.status_code, done.json()["type"]) == (422, "invalid-input"), query


async def test_a_route_or_a_method_that_does_not_exist_is_a_problem_too(served):
    nowhere = await served.client.get("/v1/nowhere")
    wrong = await served.client.put("/v1/sessions", json={})
    assert (nowhere.status_code, nowhere.headers["content-type"]) == (404, "application/problem+json")
    assert (wrong.status_code, wrong.json()["type"]) == (405, "method-not-allowed")
    assert wrong.headers["Allow"] == "GET, POST"
    for path, methods in [
        ("/v1/sessions/s", "DELETE, GET, PATCH"),
        ("/v1/sessions/s/wait", "POST"),
        ("/health", "GET"),
    ]:
        wrong = await served.client.put(path, json={})
        assert (wrong.status_code, wrong.headers["Allow"]) == (405, methods)
