"""Your own memory behind HTTP: keeps every line, answers with those that share most words with the question.

Nothing but the standard library, and the same in any other language: docs/http-agent.md says what travels.

    python examples/http_agent/server.py 8000
    egostream run --data PATH --system http:url=http://127.0.0.1:8000 --out RUN
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

memories = {}  # name → (context, records); a tuple never changes, so a fork shares it
answered = {}  # Idempotency-Key → what was answered, so that a call sent twice is done once
lock = threading.Lock()


def fork(call):
    _, records = memories[call["memory"]] if call["memory"] else (None, ())
    memories.setdefault(call["fork"], (call["context"], records))
    return {}


def ingest(call):
    seen = call["segment"]["observations"]
    return keep(call, [{name: o[name] for name in ("id", "text", "event_time_us")} for o in seen])


def commit(call):
    said = call["interaction"]
    text = "\n".join(f"{turn['role']}: {turn['text']}" for turn in said["turns"])
    return keep(call, [{"id": said["id"], "text": text, "event_time_us": said["event_time_us"]}])


def keep(call, records):
    context, kept = memories[call["memory"]]
    memories[call["memory"]] = (context, kept + tuple(records))
    return {"records": records, "stored_bytes": sum(len(r["text"].encode()) for r in records)}


def answer(call):
    context, kept = memories[call["memory"]]
    request = call["request"]
    feedback = [turn["text"] for turn in request["history"][-1:]]  # there is a history on R_F only
    asked = set(" ".join([request["text"], *feedback]).lower().split())
    best = sorted(kept, key=lambda r: -len(asked & set(r["text"].lower().split())))[: context["top_k"]]
    words = " ".join([*feedback, *(r["text"] for r in best)]).split()
    return {"text": " ".join(words[: context["word_budget"]]), "retrieved": best}


def close(call):
    del memories[call["memory"]]
    return {}


CALLS = {f"/{call.__name__}": call for call in (fork, ingest, answer, commit, close)}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keeps connections open
    disable_nagle_algorithm = True  # else each long answer waits 40 ms for the receipt of its headers

    def do_POST(self):
        body, key = self.rfile.read(int(self.headers["Content-Length"])), self.headers["Idempotency-Key"]
        with lock:
            if key not in answered:
                try:
                    answered[key] = 200, json.dumps(CALLS[self.path](json.loads(body))).encode()
                except KeyError as missing:
                    answered[key] = 404, f"there is no {missing} here".encode()
                if len(answered) > 1000:
                    del answered[next(iter(answered))]
            status, content = answered[key]
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format, *args):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
    print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
