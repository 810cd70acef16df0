# Sends events to the topic of the URL and reads them back, each in both modes.
import sys
import urllib.request
from datetime import datetime, timezone

from cloudevents.core.bindings.http import HTTPMessage, from_http_event, to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent

topic = sys.argv[1]


def ask(url, body=None, headers=None):
    request = urllib.request.Request(url, data=body, headers=headers or {})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return HTTPMessage(headers=dict(answer.headers.items()), body=answer.read())


def event(n, data, **more):
    return CloudEvent({"id": f"py-{n}", "source": "/tests/python", "type": "weir.test", "specversion": "1.0",
                       "time": datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc), "place": "café 100%", **more}, data)


events = [
    event(1, {"a": [1, 2.5, None], "ü": "\u2028"}, datacontenttype="application/json"),
    event(2, b"\x00\xff\x10\x80", datacontenttype="application/octet-stream"),
    event(3, "Grüße\n", datacontenttype="text/plain", subject="s/1", dataschema="http://example.com/schema"),
]
seq = 0
for e in events:
    for write in (to_binary_event, to_structured_event):
        message = write(e)
        ask(topic, message.body, message.headers)
        seq += 1
        for accept in ("*/*", "application/cloudevents+json"):
            got = from_http_event(ask(f"{topic}/records/{seq}", headers={"Accept": accept}))
            assert got.get_attributes() == e.get_attributes(), (write, accept, got.get_attributes(), e.get_attributes())
            assert got.get_data() == e.get_data(), (write, accept, got.get_data(), e.get_data())
print("ok", seq)
