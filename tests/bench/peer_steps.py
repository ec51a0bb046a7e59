# SPDX-License-Identifier: Apache-2.0
"""What peer_ddp measures of steps: seconds of one on two ranks, and of the same work of each rank without
communication, while the other core has as much to do. Of a run the quarter of fastest
steps counts, of all rounds the best: other work on the machine only adds."""

import concurrent.futures
import dataclasses
import json
import os
import shutil
import socket
import statistics
import sys

from frame import ROOT, events_of, must
from ours import RANKS, run_process
from peers import HERE, IDX_FILES, models_environment, peer_environment

WARM_UP_STEPS = 4
# Of a step less the same work alone, by the peer's.
SHARE_OF_COMMUNICATION = 1 / 3


@dataclasses.dataclass(frozen=True)
class Work:
    batch: int  # of both ranks
    steps: int
    data: list  # words after `lockstep data`
    goals: dict  # times as fast as the peer like the book, and like lockstep
    environment: object = models_environment  # the peer's


NEVER_SLOWER = {"book": 1.0, "lockstep": 1.0}
WORKS = {
    "cnn": Work(128, 104, ["pack", "--images", IDX_FILES / "train-images-idx3-ubyte.gz", "--labels",
                           IDX_FILES / "train-labels-idx1-ubyte.gz"], {"book": 1.2, "lockstep": 1.3}, peer_environment),
    "resnet18": Work(32, 28, ["synth", "--kind", "cifar", "--size", "64", "--samples", "1024"], NEVER_SLOWER),
    "gpt": Work(4, 20, ["pack", "--text", *sorted(ROOT.glob("docs/*.md")), "--length", "256", "--classes", "256"],
                NEVER_SLOWER),
}


def quarter(steps_s):
    """What the fastest quarter of steps takes at most."""
    return sorted(steps_s)[len(steps_s) // 4]


def at_once(commands, environment, scratch):
    with concurrent.futures.ThreadPoolExecutor(len(commands)) as pool:
        list(pool.map(lambda command: run_process(command, environment, scratch, False), commands))


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Ours:
    name = "Lockstep"

    def __init__(self, program, model, scratch):
        self.program, self.model, self.work, self.data = program, model, WORKS[model], scratch / "data"
        must([program, "data", *self.work.data, "--out", self.data])

    def train(self, run, batch, *more):
        shutil.rmtree(run, ignore_errors=True)
        return [self.program, "train", "--data", self.data, "--model", self.model, "--batch", batch, "--run", run,
                "--max-steps", self.work.steps, "--checkpoint-every", "never", "--log-every", "1", *more]

    def together(self, scratch):
        run_process(self.train(scratch / "run", self.work.batch, "--np", RANKS), os.environ, scratch, False)
        return self.step_s(scratch / "run")

    def alone(self, scratch):
        """Two trainings of one rank at once, each on a core of its own, as ranks are."""
        runs = {cpu: scratch / f"run-{cpu}" for cpu in sorted(os.sched_getaffinity(0))[:RANKS]}
        trains = [["taskset", "-c", cpu, *self.train(run, self.work.batch // RANKS)] for cpu, run in runs.items()]
        at_once(trains, os.environ, scratch)
        return statistics.mean(map(self.step_s, runs.values()))

    def step_s(self, run):
        steps = [event["wall_s"] for event in events_of(run, "steps")]
        return quarter(steps[WARM_UP_STEPS:])


class Theirs:
    def __init__(self, model, like):
        self.name, self.model, self.like, self.work = f"DDP like {like}", model, like, WORKS[model]
        self.python = self.work.environment() / "bin/python"
        self.environment = dict(os.environ, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", MASTER_ADDR="127.0.0.1",
                                MASTER_PORT=str(free_port()), WORLD_SIZE=str(RANKS))

    def worker(self, out, batch, *more):
        return [self.python, HERE / "peer_ddp_worker.py", "--model", self.model, "--like", self.like, "--batch", batch,
                "--steps", self.work.steps, "--warm-up", WARM_UP_STEPS, "--data", IDX_FILES, "--out", out, *more]

    def together(self, scratch):
        """Without torchrun, whose ranks are sessions of their own: Linux gives a session as much of a busy
        machine as all of another one, and Lockstep's ranks share one."""
        out = scratch / "peer.json"
        worker = self.worker(out, self.work.batch)
        at_once([["env", f"RANK={rank}", *worker] for rank in range(RANKS)], self.environment, scratch)
        return self.step_s(out)

    def alone(self, scratch):
        outs = [scratch / f"alone-{i}.json" for i in range(RANKS)]
        batch = self.work.batch // RANKS
        at_once([self.worker(out, batch, "--alone") for out in outs], self.environment, scratch)
        return statistics.mean(map(self.step_s, outs))

    def step_s(self, out):
        return quarter(json.loads(out.read_text())["steps_s"])


def measure(ours, book, alike, rounds, scratch):
    """What was measured -> seconds a step of the best round."""
    runs = {ours.name: ours.together, alike.name: alike.together, book.name: book.together,
            f"{ours.name} alone": ours.alone, f"{alike.name} alone": alike.alone}
    seen = {}
    for turn in range(rounds):
        for name, run in runs.items():
            step_s = run(scratch)
            print(f"round {turn + 1}, {name}: {1000 * step_s:.0f} ms a step", flush=True)
            seen[name] = min(step_s, seen.get(name, step_s))
    return seen


def add_bars(bars, seen, ours, book, alike):
    for peer in (book, alike):
        bars.at_least(f"times as fast as {peer.name}", seen[peer.name] / seen[ours.name], ours.work.goals[peer.like])
    mine, theirs = (1000 * (seen[one.name] - seen[f"{one.name} alone"]) for one in (ours, alike))
    print(", ".join(f"{name} {1000 * step_s:.1f} ms" for name, step_s in seen.items()))
    print(f"a step less the work alone: {ours.name} {mine:.1f} ms, {alike.name} {theirs:.1f} ms")
    if theirs <= 0:
        sys.exit("peer_ddp: the peer was no slower with communication than without: measure on an idle machine")
    bars.at_most("a step less the work alone, by the peer's", mine / theirs, SHARE_OF_COMMUNICATION)


def add_step_bars(bars, program, model, rounds, scratch):
    ours, book, alike = Ours(program, model, scratch), Theirs(model, "book"), Theirs(model, "lockstep")
    add_bars(bars, measure(ours, book, alike, rounds, scratch), ours, book, alike)
