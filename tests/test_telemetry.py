"""Spans, received by a real server that speaks OTLP over HTTP: what happened, never content."""

import gzip
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from flask import Flask
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from refine import telemetry
from refine.extensions import db
from refine.models import Agent
from tests import factories
from tests.api.conftest import program_of
from tests.commands import environment
from tests.refinement.conftest import World

CANARY = "canary"


class Collector:
    """Keeps the spans that it receives."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                is_packed = self.headers.get("Content-Encoding") == "gzip"
                collector.received.append(gzip.decompress(body) if is_packed else body)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def spans(self) -> list[Any]:
        """All spans, in the order of their beginning."""
        requests = [ExportTraceServiceRequest.FromString(body) for body in self.received]
        found = [
            span
            for request in requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        return sorted(found, key=lambda span: span.start_time_unix_nano)


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.005,), daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


@pytest.fixture
def world(app: Flask, environ: dict[str, str], model: Any) -> World:
    """An agent whose every word holds the canary."""
    made = World(app, environ, model)
    agent: Agent = factories.agent(
        *(f"{CANARY} {number}, {factories.text_of(25)}" for number in range(20)),
        name=CANARY,
        system_prompt=CANARY,
    )
    made.use(agent)
    db.session.commit()
    return made


def attributes(span: Any) -> dict[str, Any]:
    return {
        each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes
    }


def test_a_session_is_a_tree_of_spans_without_content(world, collector):
    ids = world.ids
    world.model.say(f"YES, {CANARY}.").call("search", query=CANARY)
    world.model.call("delete", id=ids[0], reason=CANARY).call("delete", id=ids[1])
    world.model.call("complete", summary=CANARY)

    with telemetry.exporting(collector.url, "worker"):
        session = world.refine()

    spans = collector.spans()
    names = [span.name for span in spans]
    by_id = {span.span_id: span for span in spans}
    (run,) = [span for span in spans if not span.parent_span_id]
    assert session.status == "completed"
    assert run.name == "invoke_agent RefinementSession"
    assert attributes(run)["gen_ai.conversation.id"] == str(session.id)
    assert names.count("turn") == 4
    assert names.count("chat test/model") == 5
    assert {"search_memory refinement", "delete_memory refinement"} <= set(names)
    assert {by_id[each.parent_span_id].name for each in spans if " refinement" in each.name} == {
        "turn"
    }
    (asked, *_) = [attributes(each) for each in spans if each.name.startswith("chat")]
    assert (asked["gen_ai.usage.input_tokens"], asked["gen_ai.usage.output_tokens"]) == (100, 10)
    statements = [attributes(each) for each in spans if "db.query.text" in attributes(each)]
    assert any("%(" in each["db.query.text"] for each in statements)
    assert CANARY.encode() not in b"".join(collector.received).lower()


def test_a_failure_is_the_class_of_an_error_and_no_message(world, collector):
    world.model.http(400, {"error": {"message": CANARY, "code": 400}})

    with telemetry.exporting(collector.url, "worker"):
        session = world.refine()

    (asked,) = [span for span in collector.spans() if span.name.startswith("chat")]
    assert session.status == "failed"
    assert attributes(asked)["error.type"] == "CallFailed"
    assert not asked.events
    assert CANARY.encode() not in b"".join(collector.received).lower()


def test_a_request_is_a_span_by_its_route_with_its_statements(app, collector):
    agent = factories.agent(f"the {CANARY} sings")
    program = program_of(app, agent)

    with telemetry.exporting(collector.url, "web"):
        program.get(f"/memories?query={CANARY}")
        program.post("/memories", json={"content": CANARY, "memory_type": "core"})

    requests = [span for span in collector.spans() if not span.parent_span_id]
    assert [span.name for span in requests] == [
        "GET /api/v1/memories",
        "POST /api/v1/memories",
    ]
    assert attributes(requests[1])["http.response.status_code"] == 201
    assert any(span.parent_span_id == requests[0].span_id for span in collector.spans())
    assert CANARY.encode() not in b"".join(collector.received).lower()


def test_nothing_is_loaded_or_recorded_without_the_setting(app, client):
    code = "import sys, refine.application; sys.exit('opentelemetry.exporter' in str(sys.modules))"

    done = subprocess.run([sys.executable, "-c", code], env=environment({}), check=False)

    with telemetry.exporting(None, "web"):
        assert client.get("/healthz").status_code == 200
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("tool", "action", "operation"),
    [
        ("refinement", "update", "update_memory"),
        ("refinement", "complete", "execute_tool"),
        ("refinement", f"a {CANARY}", "execute_tool"),
        ("refinement", {"a": CANARY}, "execute_tool"),
        ("save_memory", None, "create_memory"),
    ],
)
def test_tool_calls_are_called_by_what_they_do_to_memories(tool, action, operation):
    assert telemetry.memory_operation(tool, action) == operation
