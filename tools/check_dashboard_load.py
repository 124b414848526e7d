#!/usr/bin/env python3
"""usage: tools/check_dashboard_load.py [--steps N] [--ranks N] [--runs N] [--keep DIR]

Makes a folder as `fsdp train` would have written it in N steps (600000: ten hours of 1000 steps a
minute), and measures `fsdp dashboard` on it while lines are still appended: time of a refresh, with
two clients and with one that cuts its connection, memory of the process, and how long it takes until
everything was read. A time is what the client waits, and also the processor time of the server, which
does not depend on what else runs on the machine. Needs only Python. FSDP_BUILD is the build folder
("build"). Exits with 1 if the memory reaches 100 MiB, or if an answer takes 50 ms of processor time; and
if a client waits 50 ms for it, unless more programs are running than the machine has processors.
"""
import argparse
import http.client
import json
import math
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse

TAGS = ("param", "grad", "optim", "activation", "comm", "data")


def memory(activation):
    values = {"param": 400 << 20, "grad": 400 << 20, "optim": 800 << 20, "activation": activation, "comm": 64 << 20,
              "data": 1 << 20}
    return json.dumps({"allocated": sum(values.values()), "reserved": 2 << 30, **values})


def step_line(step, rng):
    loss = 2 + 8 * math.exp(-step / 60000) + rng.gauss(0, 0.1)
    return (f'{{"kind": "step", "step": {step}, "epoch": {1 + step // 100000}, "loss": {loss!r}, "tokens": 32768, '
            f'"label_tokens": 8192, "seconds": {0.06 + rng.random() * 0.005!r}, "tokens_per_s": {5e5 + rng.random() * 1e4!r}, '
            f'"grad_norm": {1 + rng.random()!r}, "lr": {1e-3 * (1 - step / 700000)!r}, "memory_peak": {memory(3 << 29)}}}\n')


def rank_line(at, step, rng):
    wait = rng.random() * 0.2
    return (f'{{"kind": "rank", "time": {at:.3f}, "step": {step}, "state": "training", "steps": 17, "seconds": 1.0, '
            f'"wait_s": {wait!r}, "data_s": 0.01, "queued_s": 0.02, "memory": {memory(rng.randrange(1 << 30))}}}\n')


def make_run(folder, steps, ranks, seed):
    rng = random.Random(seed)
    os.makedirs(os.path.join(folder, "metrics.ranks"))
    begin = time.time() - steps * 0.06
    with open(os.path.join(folder, "metrics.jsonl"), "w") as out:
        for step in range(1, steps + 1):
            out.write(step_line(step, rng))
            if step % 5000 == 0:
                out.write(f'{{"kind": "validation", "step": {step}, "epoch": 1, "loss": {3 + rng.random()!r}, "seconds": 4}}\n')
    units = json.dumps([{"name": f"model.layers.{i}", "gathers": 9, "gather_bytes": 9, "reduces": 9, "reduce_bytes": 9,
                         "all_reduces": 0, "all_reduce_bytes": 0, "wait_s": 0.5} for i in range(32)])
    for rank in range(ranks):
        with open(os.path.join(folder, "metrics.ranks", f"{rank}.jsonl"), "w") as out:
            out.write(f'{{"kind": "start", "time": {begin}, "step": 0, "rank": {rank}, "world_size": {ranks}, "pid": 1, '
                      '"host": "another", "device": "cpu", "threads": 1}\n')
            for step in range(17, steps + 1, 17):
                out.write(rank_line(begin + step * 0.06, step, rng))
                if step % (17 * 60) == 0:
                    out.write(f'{{"kind": "units", "time": {begin + step * 0.06}, "step": {step}, "units": {units}}}\n')
    config = {f"option-{i}": str(i) for i in range(150)}
    with open(os.path.join(folder, "metrics.ranks", "run.json"), "w") as out:
        json.dump({"total_steps": steps, "config": config}, out)


def resident(pid):
    with open(f"/proc/{pid}/status") as status:
        for line in status:
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    return 0.0


def processor_ms(pid):
    """Milliseconds that the threads of the process have run."""
    threads = f"/proc/{pid}/task"
    total = 0
    for thread in os.listdir(threads):
        with open(os.path.join(threads, thread, "schedstat")) as stat:
            total += int(stat.read().split()[0])
    return total / 1e6


class Client:
    def __init__(self, address):
        self.url = urllib.parse.urlparse(address)
        self.connection = http.client.HTTPConnection(self.url.netloc, timeout=30)

    def get(self, path):
        begin = time.perf_counter()
        self.connection.request("GET", self.url.path + path)
        answer = self.connection.getresponse()
        body = answer.read()
        assert answer.status == 200, (answer.status, body[:200])
        return (time.perf_counter() - begin) * 1e3, body


def cut_connection(address):
    url = urllib.parse.urlparse(address)
    with socket.create_connection((url.hostname, url.port)) as connection:
        connection.sendall(f"GET {url.path}runs HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def wait_until_read(client, begin):
    while True:
        _, body = client.get("runs")
        state = json.loads(body)
        if state["runs"] and all(run["read"] > 0.9999 for run in state["runs"]):
            return time.time() - begin, state
        time.sleep(0.2)


def wait_until_idle(pid, begin):
    """The files of the ranks are read after that of the steps. A server that has read all files hardly runs."""
    while True:
        before = processor_ms(pid)
        time.sleep(1)
        if processor_ms(pid) - before < 20:
            return time.time() - begin


def measure(address, pid, folders, rounds):
    """Each kind of answer: [(milliseconds that the client waited, milliseconds that the server ran)]."""
    first, second = Client(address), Client(address)
    revision, rng, times = 0, random.Random(1), {}

    def ask(kind, client, path, begin=None):
        begin = processor_ms(pid) if begin is None else begin
        ms, body = client.get(path)
        times.setdefault(kind, []).append((ms, processor_ms(pid) - begin))
        return body

    for i in range(rounds):
        begin = processor_ms(pid)
        for folder in folders:
            with open(os.path.join(folder, "metrics.jsonl"), "a") as out:
                out.write("".join(step_line(10 ** 6 + 25 * i + k, rng) for k in range(25)))
        time.sleep(0.5)
        # The processor time of this one includes reading the lines.
        revision = json.loads(ask("refresh", first, f"runs?since={revision}", begin))["revision"]
        ask("one run", first, "run?id=1")
        cut_connection(address)
        ask("second tab", second, f"runs?since={revision}")
        whole = ask("first page", second, "runs?since=0")
    return times, len(whole)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600000)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--keep", help="folder for the files, which are kept")
    options = parser.parse_args()
    fsdp = os.path.join(os.environ.get("FSDP_BUILD", "build"), "fsdp")
    root = options.keep or tempfile.mkdtemp(prefix="dashboard-load-")
    folders = [os.path.join(root, f"run-{i}") for i in range(options.runs)]
    try:
        for i, folder in enumerate(folders):
            if not os.path.exists(folder):
                make_run(folder, options.steps, options.ranks, i)
        size = sum(os.path.getsize(os.path.join(path, name)) for path, _, names in os.walk(root) for name in names)
        print(f"{options.runs} run(s) of {options.steps} steps, {options.ranks} ranks: {size / 2**20:.0f} MiB of files")
        server = subprocess.Popen([fsdp, "dashboard", "--port", "0", "--address-only", "--until-stdin-closes", root],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        address, begin = server.stdout.readline().strip(), time.time()
        try:
            seconds, state = wait_until_read(Client(address), begin)
            assert all(run["steps"] >= options.steps for run in state["runs"]), "lines are missing"
            whole = wait_until_idle(server.pid, begin)
            print(f"steps read after {seconds:.1f} s, everything after {whole:.1f} s; memory at most {resident(server.pid):.1f} MiB")
            times, length = measure(address, server.pid, folders, options.rounds)
            most = resident(server.pid)
        finally:
            server.stdin.close()
            server.wait(10)
    finally:
        if not options.keep:
            shutil.rmtree(root)
    slow = False
    crowded = os.getloadavg()[0] > os.cpu_count()
    for name, values in times.items():
        waited, ran = [v[0] for v in values], [v[1] for v in values]
        print(f"{name:10} waited: median {statistics.median(waited):5.1f} ms, slowest {max(waited):5.1f} ms; "
              f"server ran: median {statistics.median(ran):5.1f} ms, most {max(ran):5.1f} ms")
        slow |= statistics.median(ran) >= 50 or (statistics.median(waited) >= 50 and not crowded)
    print(f"whole answer {length / 1024:.0f} KiB; memory at most {most:.1f} MiB; exit code {server.returncode}; "
          f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    good = most < 100 and not slow and server.returncode == 0
    print("good" if good else "NOT within 100 MiB and 50 ms")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
