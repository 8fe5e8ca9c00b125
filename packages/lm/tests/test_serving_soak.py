"""Hours of mixed requests: answers that are right, cancellations, slow readers, hostile bodies; nothing lost, memory
flat.

SOAK_SECONDS says how long; two hours if it does not.
"""

from __future__ import annotations

import json
import os
import random
import socket
import threading
import time
from collections import Counter

import pytest
import torch
from test_serving import MARKS, pytestmark, served  # noqa: F401

import lm

SECONDS = float(os.environ.get("SOAK_SECONDS", "7200"))
CLIENTS = 8
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
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return lm.Transformer(lm.ModelConfig(259, 512, 2, 64, 4, 128)).eval()


@pytest.fixture(scope="module")
def tokenizer():
    import bpe

    return bpe.Tokenizer({i: bytes([i]) for i in range(256)}, [], special_tokens=MARKS)


def resident() -> int:
    """Bytes of this process, in which the server is."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Client:
    """Asks in one of several ways, again and again; counts what it did, and keeps the first thing that was wrong."""

    def __init__(self, address, model, tokenizer, seed, end):
        self.address, self.port = address, int(address.rsplit(":", 1)[1])
        self.model, self.tokenizer, self.end = model, tokenizer, end
        self.draw, self.done, self.wrong = random.Random(seed), {}, None

    def run(self):
        ways = [self.right, self.right, self.streamed, self.leaves, self.reads_slowly, self.hostile, self.stalls]
        try:
            while time.monotonic() < self.end and self.wrong is None:
                way = self.draw.choice(ways)
                way()
                self.done[way.__name__] = self.done.get(way.__name__, 0) + 1
        except Exception as error:
            self.wrong = error

    def body(self, **more):
        same = "a system's message that many have in common, which is long enough to be kept. " * 3
        prompt = same[: self.draw.randrange(1, len(same))] + str(self.draw.random())
        seed = self.draw.randrange(1 << 30)
        return {"prompt": prompt, "max_tokens": self.draw.randrange(1, 60), "seed": seed, "temperature": 0.8, **more}

    def alone(self, body):
        ids = lm.generate(
            self.model,
            list(body["prompt"].encode()),
            max_new_tokens=body["max_tokens"],
            temperature=0.8,
            seed=body["seed"],
            stop_tokens=[256, 258],
        )
        return self.tokenizer.decode(ids)

    def right(self):
        import httpx

        body = self.body()
        answer = httpx.post(f"{self.address}/v1/completions", json=body, timeout=300)
        if answer.status_code == 429:
            time.sleep(0.1)
            return
        assert answer.status_code == 200, answer.text
        assert answer.json()["choices"][0]["text"] == self.alone(body)

    def streamed(self):
        import httpx

        body, text = self.body(stream=True), ""
        with httpx.stream("POST", f"{self.address}/v1/completions", json=body, timeout=300) as answer:
            if answer.status_code == 429:
                return
            for line in answer.iter_lines():
                if line.startswith("data: {"):
                    text += json.loads(line[6:])["choices"][0]["text"]
        assert text == self.alone(body)

    def leaves(self):
        self.send(self.body(stream=self.draw.random() < 0.5, max_tokens=200)).close()

    def reads_slowly(self):
        with self.send(self.body(stream=True, max_tokens=100)) as reader:
            for _ in range(5):
                reader.recv(20)
                time.sleep(0.05)

    def stalls(self):
        with socket.create_connection(("127.0.0.1", self.port)) as one:
            one.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Len"[: self.draw.randrange(60)])

    def hostile(self):
        import httpx

        body = self.draw.choice(HOSTILE)
        headers = {"Content-Type": "application/json"}
        answer = httpx.post(f"{self.address}/v1/completions", content=body, headers=headers, timeout=300)
        assert answer.status_code in (400, 429), (body[:50], answer.text[:200])

    def send(self, body):
        data = json.dumps(body).encode()
        one = socket.create_connection(("127.0.0.1", self.port))
        head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        one.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        return one


@pytest.mark.soak
def test_hours_of_mixed_requests(model, tokenizer):
    from lm.generation.kv_cache import bytes_of_page

    end = time.monotonic() + SECONDS
    memory = 40 * bytes_of_page(model)  # less than the texts would fill: the youngest wait now and then
    with served(model, tokenizer, rows=6, waiting=16, body_seconds=5.0, memory=memory) as (address, engine):
        clients = [Client(address, model, tokenizer, seed, end) for seed in range(CLIENTS)]
        threads = [threading.Thread(target=client.run) for client in clients]
        for thread in threads:
            thread.start()
        sizes = list[int]()
        while any(thread.is_alive() for thread in threads):
            time.sleep(min(5.0, SECONDS / 20))
            sizes.append(resident())
        for thread in threads:
            thread.join()
        wrong = [client.wrong for client in clients if client.wrong is not None]
        if wrong:
            raise wrong[0]
        last = time.monotonic() + 60
        while (engine.running or engine.queue) and time.monotonic() < last:
            time.sleep(0.05)
        assert not engine.running
        assert not engine.queue
        cache = engine.batch.cache
        kept = {page for chunk in engine.batch.prefixes.chunks.values() for page in chunk.pages}
        assert len(cache.free) + len(kept) == cache.pages
        done = Counter[str]()
        for client in clients:
            done.update(client.done)
        quarter = len(sizes) // 4
        early, late = max(sizes[quarter : 2 * quarter]), max(sizes[3 * quarter :])
        print(f"{SECONDS:g} s, {done}, {engine.metrics.ended}, {early / 1e6:.0f} then {late / 1e6:.0f} MB")
        assert late < early * 1.1 + 16e6
