"""What schemathesis cannot know of the API: how texts of a kind of their own are made, how lines are sent, and which parts of a
request go together.

Nothing here hides an answer: a request that is meant to be good is made better, so that it gets past the door.
"""

import json
from datetime import UTC, datetime, timedelta

import schemathesis
from hypothesis import strategies as st

FORMATS = {
    "punctual-cron": ["0 9 * * 1-5", "*/15 * * * *", "H H * * *", "@daily", "30 2 L * *", "0 9 31 2 *", "0 9 * * mon"],
    "punctual-interval": ["60s", "15m", "24h", "7d", "1s", "36525d"],
    "punctual-tz": ["UTC", "Asia/Kolkata", "America/New_York", "Europe/Berlin", "Etc/GMT+5"],
    "punctual-moment": ["2026-12-05T09:00", "2030-03-10T02:30:00", "2026-12-05T09:00:00Z", "2099-12-31T23:59:59+05:30"],
    "punctual-url": [
        "https://hooks.example.com/bills",
        "https://sqs.eu-west-1.amazonaws.com/123456789012/bills",
        "https://127.0.0.1/",
    ],
    "punctual-tenant": ["fuzz"],
}
for name, texts in FORMATS.items():
    schemathesis.openapi.format(name, st.sampled_from(texts))


@schemathesis.hook
def before_load_schema(ctx, raw_schema):
    """Takes the contract at its word: an answer with a field that it does not name is wrong, whatever clients may ignore."""
    parts = [raw_schema["components"]["schemas"]]
    while parts:
        part = parts.pop()
        if isinstance(part, list):
            parts.extend(part)
        elif isinstance(part, dict):
            parts.extend(part.values())
            if part.get("type") == "object" and isinstance(part.get("properties"), dict):
                part.setdefault("additionalProperties", False)


given = {}
"""Cursors that the API gave, and the listing that each is a place of."""


def listing(case):
    """What a cursor belongs to: the path and all that chooses entries."""
    choice = {name: value for name, value in case.query.items() if name not in ("cursor", "limit")}
    return case.method, case.formatted_path, json.dumps(choice, sort_keys=True)


@schemathesis.hook
def before_call(ctx, case, kwargs):
    """Mends good requests where parts of them do not go together, which no schema of a single part can say."""
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    # A key for every tenant must say which one is meant, a tenant's key may name its own.
    case.headers["Punctual-Tenant"] = "fuzz"
    # A cursor can only be had from the listing that it is a place of.
    if "cursor" in case.query and given.get(case.query["cursor"]) != listing(case):
        del case.query["cursor"]
    # An audit asks about a span within the 60 days for which rows are kept.
    if case.path == "/v1/audit":
        for name, hours in (("from", 48), ("to", 1)):
            if name in case.query:
                case.query[name] = (datetime.now(UTC) - timedelta(hours=hours)).isoformat(timespec="seconds")
    # A call on a prefix has no version, and a run of many needs a key.
    if str(case.path_parameters.get("id", "")).endswith(("/", "%2F")):
        case.headers.pop("If-Match", None)
        if case.path.endswith("/run"):
            case.headers["Idempotency-Key"] = "fuzz-1"


@schemathesis.hook
def after_call(ctx, case, response):
    """Notes the cursors that the API gives."""
    if response.status_code == 200 and response.headers.get("content-type") == ["application/json"]:
        body = json.loads(response.content)
        if isinstance(body, dict) and body.get("next_cursor"):
            given[body["next_cursor"]] = listing(case)


@schemathesis.serializer("application/x-ndjson")
def lines_of(ctx, value):
    """Sends a list as lines."""
    values = value if isinstance(value, list) else [value]
    return "".join(json.dumps(one) + "\n" for one in values).encode()


@schemathesis.deserializer("application/x-ndjson")
def read_lines(ctx, response):
    """Reads lines as a list."""
    return [json.loads(line) for line in response.content.decode().splitlines()]


@schemathesis.check
def bad_lines_are_refused(ctx, response, case):
    """In place of the status that other operations end with: of bad lines one is refused at least."""
    is_import = case.operation.definition.raw.get("operationId") == "importJobs"
    if not is_import or case.meta is None or response.status_code != 200:
        return
    if any(place.name == "BODY" and part.mode.is_negative for place, part in case.meta.components.items()):
        results = [line.get("result") for line in read_lines(ctx, response)]
        assert "refused" in results, "bad lines were taken"
