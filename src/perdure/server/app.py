"""The HTTP application over one engine.

Lives here: putting gate, routes and problems together, and the lifespan that starts and stops the engine. Not here:
sockets and signals (`run.py`). There is no CORS: a page of another origin has no business here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute

from perdure import config
from perdure.engine import perdure as embedded
from perdure.server import auth, cookies, describing, gate, problems
from perdure.server.routes import (
    approvals,
    control,
    events,
    health,
    login,
    metrics,
    prompts,
    recoveries,
    sessions,
    transcript,
)
from perdure.server.serving import Serving
from perdure.version import VERSION

ROUTES = (health, login, metrics, sessions, prompts, transcript, events, control, approvals, recoveries)


def create_app(
    perdure: embedded.Perdure, settings: config.Settings | None = None, *, token: str | None = None
) -> FastAPI:
    """The app that serves `perdure`, whose engine starts and stops with it.

    `token` is found by `auth.credential` unless given. Raises `ConfigError`.
    """
    chosen = settings or perdure.engine.settings
    expected = auth.credential(chosen).token if token is None else token
    guard = auth.Guard(chosen, expected, cookies.Cookies(expected, perdure.engine.world.clock.now_ms))
    serving = Serving(perdure, chosen, guard)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None, None]:
        async with perdure:
            perdure.engine.log.live.tap(serving.counts.heard)
            yield
            serving.close()

    app = FastAPI(
        title="Perdure",
        version=VERSION,
        summary="Durable sessions for LLM agents.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.serving = serving
    app.add_middleware(gate.Gate, guard=guard, max_body=int(chosen.max_body_mib * 2**20))
    for module in ROUTES:
        app.include_router(module.router)
    problems.install(app, [route for module in ROUTES for route in module.router.routes if isinstance(route, APIRoute)])
    describe: Callable[[], dict[str, Any]] = lambda: describing.describe(app)  # noqa: E731, FastAPI asks for it by this name
    app.openapi = describe
    return app
