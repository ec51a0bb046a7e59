# SPDX-License-Identifier: Apache-2.0
"""The frame of benchmarks and soaks: their options, what they run, and the bars in their last line."""

import argparse
import contextlib
import json
import os
import pathlib
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
import typing

ROOT = pathlib.Path(__file__).resolve().parents[2]
FASHION_MNIST = ROOT / "build/data/fashion-mnist"


def parser(doc, program="build/release/bin/lockstep"):
    """Of a program with this docstring, with --program unless there is none."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if program:
        made.add_argument("--program", type=pathlib.Path, default=ROOT / program)
    return made


def begin(options_parser, **usual):
    """The options, with `usual` ones by their defaults: False is a flag, of a tuple the first is the default and no other word
    is taken, a type has none, and others have the type of theirs. Root may start ranks from here on, and SIGTERM ends this
    process as an exception does."""
    for name, default in usual.items():
        how = ({"action": "store_true"} if default is False else
               {"choices": default, "default": default[0]} if isinstance(default, tuple) else
               {"type": default} if isinstance(default, type) else {"type": type(default), "default": default})
        options_parser.add_argument("--" + name.replace("_", "-"), **how)
    options = options_parser.parse_args()
    if getattr(options, "program", None):
        options.program = options.program.resolve()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if os.geteuid() == 0:
        os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    return options


def without_defaults():
    """From here on no defaults of this user or site count."""
    os.environ.update(XDG_CONFIG_HOME="/nonexistent", LOCKSTEP_SITE_CONFIG="")


@contextlib.contextmanager
def scratch(name, folder=None):
    with tempfile.TemporaryDirectory(dir=folder, prefix=f"lockstep-{name}-") as made:
        yield pathlib.Path(made)


class Done(typing.NamedTuple):
    code: int
    out: str
    err: str

    def said(self):
        return self.out + self.err


def run(words, folder=None, timeout=None, **variables):
    """Runs a program to its end."""
    done = subprocess.run([str(word) for word in words], cwd=folder, timeout=timeout, text=True, errors="replace",
                          capture_output=True, stdin=subprocess.DEVNULL,
                          env={**os.environ, **{name: str(text) for name, text in variables.items()}})
    return Done(done.returncode, done.stdout, done.stderr)


def must(words, **how):
    """What a program printed that must succeed."""
    done = run(words, **how)
    if done.code != 0:
        sys.exit(f"{' '.join(map(str, words))} ended with {done.code}\n{done.said()}")
    return done.out


def last_json(words, **how):
    """The JSON in the last line of a program that must succeed."""
    return json.loads(must(words, **how).splitlines()[-1])


def parameters_in(said):
    """The hash that a training printed, or None."""
    found = re.search(r"^parameters +([0-9a-f]{32})$", said, re.MULTILINE)
    return found and found[1]


def hashes_in(said):
    """{ranks: hash of the parameters}, as `verify` printed them."""
    return dict(re.findall(r"^ *([0-9]+) +([0-9a-f]{32})$", said, re.MULTILINE))


def is_equal_on(ranks, done):
    """Whether `verify` on these, such as "1,2,4", ended well with one hash on all of them."""
    hashes = hashes_in(done.said()).values()
    return done.code == 0 and len(hashes) == len(ranks.split(",")) and len(set(hashes)) == 1


def events_of(run, kind, rank=0):
    """The records of this kind in the log of a rank, such as "steps"."""
    lines = (run / f"logs/i1/rank-{rank:05}.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event.get("event") == kind]


def processes_with(path):
    """{pid: name} of the living processes but this one that have `path`, or one below it, on their command line."""
    path, found = os.fsencode(path), {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if int(pid) != os.getpid() and any(word == path or word.startswith(path + b"/") for word in words):
                found[int(pid)] = pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
        except OSError:
            continue
    return found


def processes_of(run):
    """{rank: pid} of a training; the processes above its ranks as -1, -2, ..."""
    found = {}
    for pid in processes_with(run):
        with contextlib.suppress(OSError):  # it has ended
            rank = re.search(rb"(?:^|\0)OMPI_COMM_WORLD_RANK=(\d+)", pathlib.Path(f"/proc/{pid}/environ").read_bytes())
            found[int(rank[1]) if rank else -1 - len(found)] = pid
    return found


def left_of(path, patience_s):
    """Those of `processes_with` that are there after so long; they are killed."""
    deadline = time.monotonic() + patience_s
    while (left := processes_with(path)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return left


def npy(path, descr, shape, values):
    """https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html, version 1"""
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + values)


class Bars(dict):
    """By name: what was measured, its goal, and whether it is reached."""

    def add(self, name, value, goal, ok, digits=3, **more):
        self[name] = {"value": round(value, digits), "goal": goal, **more, "ok": bool(ok)}

    def at_least(self, name, value, goal, digits=3):
        self.add(name, value, goal, value >= goal, digits)

    def at_most(self, name, value, goal, digits=3):
        self.add(name, value, goal, value <= goal, digits)

    def equal(self, name, value, goal, **more):
        self.add(name, value, goal, value == goal, **more)

    def are_met(self):
        return all(bar["ok"] for bar in self.values())


def machine():
    cpus = [line.split(":")[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cpu": cpus[0] if cpus else "unknown", "cores": os.cpu_count(), "memory_gib": round(memory / 2**30),
            "kernel": platform.release(), "torch": "2.11.0"}


def finish(bench, bars, missed=1, met=0, **more):
    """Prints the last line and ends: with `missed` if a bar is missed."""
    print(json.dumps({"bench": bench, "machine": machine(), **more, "bars": bars}))
    sys.exit(met if bars.are_met() else missed)
