"""Hours of mixed requests: answers that are right, cancellations, slow readers, hostile bodies; nothing lost, memory
flat.

SOAK_SECONDS says how long; two hours if it does not. SOAK_REST says for how many seconds the clients rest after each
five of work, 0 if it does not: with a long rest, hours of it leave the machine to others.
"""

from __future__ import annotations

import json
import os
import random
import socket
import statistics
import threading
import time
from collections import Counter

import pytest
from models import random_model
from served import needs_server, served
from talks import MARKS

import lm
from lm.generation.kv_cache import bytes_of_page

pytestmark = needs_server
SECONDS = float(os.environ.get("SOAK_SECONDS", "7200"))
WORK, REST = 5.0, float(os.environ.get("SOAK_REST", "0"))
CLIENTS = 8
GROWTH = 8e6  # bytes by which the median of the last quarter may be above that of the second
# Bytes of the cache of the tokenizer, which every prompt with new words fills: by default it grows to 64 MB. This much
# is full after a few thousand prompts, so that what grows after them is a leak.
TOKENIZER_CACHE = 1 << 20
HOSTILE = [
    b"{",
    b"[" * 50_000,
    b'{"prompt": "a", "max_tokens": -1}',
    b'{"prompt": ' + b'"' + b"x" * 5000 + b'"}',
    b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
    b'{"prompt": [999999]}',
    b'{"prompt": "a", "logit_bias": {"x": 1}}',
    b"\xff\xfe\x00",
]


@pytest.fixture(scope="module")
def model():
    return random_model(259, 512, 2, 64, 4, 128)


@pytest.fixture(scope="module")
def tokenizer():
    import bpe

    return bpe.Tokenizer({i: bytes([i]) for i in range(256)}, [], special_tokens=MARKS, cache_bytes=TOKENIZER_CACHE)


class State:
    """Memory, files and threads of this process, which the server runs in, when no request is open."""

    def __init__(self):
        with open("/proc/self/statm") as file:
            self.bytes = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        self.files, self.threads = len(os.listdir("/proc/self/fd")), threading.active_count()


class Hours:
    """Five seconds of work, then a rest of all, in which the state is looked at; until the end or a mistake."""

    def __init__(self, engine, clients):
        self.engine, self.clients, self.began = engine, clients, time.monotonic()
        self.end, self.work_until, self.over = self.began + SECONDS, self.began + WORK, False
        self.states, self.printed_at = list[State](), 0.0
        self.all_rest = threading.Barrier(len(clients), action=self.look)

    def look(self):
        """Called when every client has its answers: the server must have nothing left to do, and hold nothing."""
        last = time.monotonic() + 60
        while (self.engine.running or self.engine.queue) and time.monotonic() < last:
            time.sleep(0.01)  # those who left are noticed soon
        cache, chunks = self.engine.batch.cache, self.engine.batch.prefixes.chunks.values()
        assert not self.engine.running
        assert not self.engine.queue
        assert len(cache.free) + len({page for chunk in chunks for page in chunk.pages}) == cache.pages
        time.sleep(REST)
        self.states.append(State())
        now = time.monotonic()
        self.over = now > self.end or any(client.wrong for client in self.clients)
        if now > self.printed_at + 60 or self.over:
            self.printed_at = now
            state, done = self.states[-1], sum((client.done for client in self.clients), Counter())
            print(
                f"{now - self.began:6.0f} s  {sum(done.values())} requests  {state.bytes / 1e6:.1f} MB resident  "
                f"{state.files} files  {state.threads} threads",
                flush=True,
            )
        self.work_until = time.monotonic() + WORK


class Client:
    """Asks in one of several ways, again and again; counts what it did, and keeps the first thing that was wrong."""

    def __init__(self, address, model, tokenizer, seed):
        import httpx

        self.address, self.port = address, int(address.rsplit(":", 1)[1])
        self.model, self.tokenizer, self.hours = model, tokenizer, None
        self.draw, self.done, self.wrong = random.Random(seed), Counter(), None
        self.http = httpx.Client(base_url=address, timeout=300, verify=False)

    def run(self):
        ways = [self.right, self.right, self.streamed, self.chats, self.samples, self.leaves, self.reads_slowly]
        ways += [self.hostile, self.stalls, self.looks, self.schema]
        try:
            while not self.hours.over:
                while time.monotonic() < self.hours.work_until and self.wrong is None:
                    way = self.draw.choice(ways)
                    self.done[way.__name__ if way() else "refused for want of room"] += 1
                self.hours.all_rest.wait()
        except Exception as error:
            self.wrong = error
            self.hours.over = True
            self.hours.all_rest.abort()
        finally:
            self.http.close()

    def body(self, **more):
        same = "a system's message that many have in common, which is long enough to be kept. " * 3
        prompt = same[: self.draw.randrange(1, len(same))] + str(self.draw.random())
        seed = self.draw.randrange(1 << 30)
        return {"prompt": prompt, "max_tokens": self.draw.randrange(1, 60), "seed": seed, "temperature": 0.8, **more}

    def alone(self, body, sample=0):
        ids = lm.generate(
            self.model,
            list(body["prompt"].encode()),
            max_new_tokens=body["max_tokens"],
            temperature=0.8,
            seed=body["seed"] + sample,
            stop_tokens=[256, 258],
        )
        return self.tokenizer.decode(ids)

    def post(self, path, body):
        """The answer; None: there was no room."""
        answer = self.http.post(path, json=body)
        if answer.status_code == 429:
            time.sleep(0.1)
            return None
        assert answer.status_code == 200, answer.text
        return answer.json()

    def right(self):
        body = self.body()
        answer = self.post("/v1/completions", body)
        if answer is not None:
            assert answer["choices"][0]["text"] == self.alone(body)
        return answer is not None

    def samples(self):
        body = self.body(n=2, logprobs=2)
        answer = self.post("/v1/completions", body)
        if answer is not None:
            assert [choice["text"] for choice in answer["choices"]] == [self.alone(body), self.alone(body, 1)]
        return answer is not None

    def chats(self):
        messages = [{"role": "user", "content": self.body()["prompt"][:60]}]
        body = {"messages": messages, "max_tokens": 30, "seed": 1, "temperature": 0.8}
        first, again = self.post("/v1/chat/completions", body), self.post("/v1/chat/completions", body)
        if first is not None and again is not None:
            assert first["choices"] == again["choices"]
        return first is not None and again is not None

    def schema(self):
        names = [f"name{self.draw.randrange(1000)}" for _ in range(2)]
        schema = {"type": "object", "properties": {name: {"type": "boolean"} for name in names}, "required": names}
        form = {
            "type": "json_schema",
            "json_schema": {"name": "a", "schema": {**schema, "additionalProperties": False}},
        }
        body = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 100, "response_format": form}
        answer = self.post("/v1/chat/completions", body)
        if answer is not None and answer["choices"][0]["finish_reason"] == "stop":
            assert set(json.loads(answer["choices"][0]["message"]["content"])) == set(names)
        return answer is not None

    def streamed(self):
        body = self.body(stream=True)
        with self.http.stream("POST", "/v1/completions", json=body) as answer:
            if answer.status_code == 429:
                return False
            lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
        self.check_stream(body, lines)
        return True

    def check_stream(self, body, lines):
        assert lines[-1] == "[DONE]"
        choices = [json.loads(line)["choices"][0] for line in lines[:-1]]
        assert [choice["finish_reason"] is not None for choice in choices] == [False] * (len(choices) - 1) + [True]
        assert "".join(choice["text"] for choice in choices) == self.alone(body)

    def leaves(self):
        with self.send(self.body(stream=self.draw.random() < 0.5, max_tokens=200)):
            time.sleep(self.draw.random() * 0.1)
        return True

    def reads_slowly(self):
        body, read = self.body(stream=True), b""
        with self.send(body, buffer=4096) as reader:
            while part := reader.recv(self.draw.randrange(1, 2000)):
                read += part
                time.sleep(0.02)
        head, _, rest = read.partition(b"\r\n\r\n")
        if b" 429 " in head.split(b"\r\n")[0]:
            return False
        self.check_stream(body, [line[6:] for line in rest.decode().splitlines() if line.startswith("data: ")])
        return True

    def stalls(self):
        with socket.create_connection(("127.0.0.1", self.port)) as one:
            one.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Len"[: self.draw.randrange(60)])
        return True

    def hostile(self):
        body = self.draw.choice(HOSTILE)
        answer = self.http.post("/v1/completions", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code in (400, 429), (body[:50], answer.text[:200])
        return answer.status_code == 400

    def looks(self):
        assert self.http.get("/health").json() == {"status": "ok"}
        assert "lm_texts_running" in self.http.get("/metrics").text
        return True

    def send(self, body, buffer=None):
        data = json.dumps(body).encode()
        one = socket.socket()
        if buffer is not None:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        one.connect(("127.0.0.1", self.port))
        head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        one.sendall(f"{head}Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        return one


@pytest.mark.soak
def test_hours_of_mixed_requests(model, tokenizer):
    """Every answer is what generate() alone writes. Whenever the clients rest, the server has nothing left to do and
    has every page of its cache; the median resident size of the last quarter of these moments is at most GROWTH above
    that of the second quarter, and open files and threads are at most CLIENTS more (pools of threads fill slowly)."""
    memory = 40 * bytes_of_page(model)  # less than the texts would fill: the youngest wait now and then
    with served(model, tokenizer, rows=4, waiting=4, body_seconds=5.0, memory=memory) as (address, engine):
        clients = [Client(address, model, tokenizer, seed) for seed in range(CLIENTS)]
        hours = Hours(engine, clients)
        for client in clients:
            client.hours = hours
        threads = [threading.Thread(target=client.run) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wrong = [client.wrong for client in clients if client.wrong is not None]
        for error in wrong:
            if not isinstance(error, threading.BrokenBarrierError):
                raise error
        assert not wrong
        print(sum((client.done for client in clients), Counter()), engine.metrics.ended.collect())
    quarter = max(1, len(hours.states) // 4)
    early, late = hours.states[quarter : 2 * quarter] or hours.states, hours.states[-quarter:]
    before, after = (statistics.median(state.bytes for state in states) for states in (early, late))
    print(f"resident: {before / 1e6:.1f} MB in the second quarter, {after / 1e6:.1f} MB in the last")
    assert after < before + GROWTH
    for name in ("files", "threads"):
        before, after = (statistics.median(getattr(state, name) for state in states) for states in (early, late))
        print(f"{name}: {before:g} in the second quarter, {after:g} in the last")
        assert after <= before + CLIENTS
