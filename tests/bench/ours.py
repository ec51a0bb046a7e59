# SPDX-License-Identifier: Apache-2.0
"""What benchmarks that run Lockstep share: the program of a commit, and one training with its figures."""

import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from frame import ROOT, begin, events_of, must, parser
from peers import IDX_FILES, models_environment, peer_environment

BATCH, RANKS = 128, 2
LOG_EVERY, WARM_UP_STEPS = 20, 4  # of a whole run; of one whose steps are looked at


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
    """What the fastest quarter of steps takes at most: other work on the machine only adds."""
    return sorted(steps_s)[len(steps_s) // 4]


def step_s_of(run):
    """Of a run that logs each step."""
    return quarter([event["wall_s"] for event in events_of(run, "steps")][WARM_UP_STEPS:])


def built(commit, folder, *options):
    """The program of `commit`, built in `folder`."""
    print(f"building {commit} {' '.join(options)} (some minutes)", flush=True)
    must(["git", "clone", "--quiet", ROOT, folder])
    must(["git", "checkout", "--quiet", commit], folder=folder)
    must(["cmake", "--preset", "release", "-DLOCKSTEP_TESTS=OFF", *options], folder=folder)
    must(["cmake", "--build", "build/release", "--target", "lockstep"], folder=folder)
    return folder / "build" / "release" / "bin" / "lockstep"


def children_of(parents):
    """Process ids of `parents` and all that descends from them."""
    tree = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        tree.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    found, waiting = [], list(parents)
    while waiting:
        process = waiting.pop()
        found.append(process)
        waiting += tree.get(process, [])
    return found


def proportional_bytes(process):
    """Memory of one process, pages shared by n processes counted as 1/n."""
    try:
        for line in pathlib.Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def run_process(command, environment, scratch, sample_memory):
    """Runs to the end; returns launch time, wall seconds and peak memory of the process tree."""
    launched = time.time()
    log = tempfile.TemporaryFile()
    process = subprocess.Popen([str(word) for word in command], env=dict(environment, TMPDIR=str(scratch)), stdout=log,
                               stderr=subprocess.STDOUT)
    peak = 0
    while sample_memory and process.poll() is None:
        peak = max(peak, sum(map(proportional_bytes, children_of([process.pid]))))
        time.sleep(0.2)
    code = process.wait()
    wall = time.time() - launched
    if code != 0:
        log.seek(0)
        sys.stdout.write(log.read().decode(errors="replace"))
        sys.exit(f"{command[0]} exited with {code}")
    return launched, wall, peak


def options_of_two_builds(doc, data, *more):
    """Options of a program that compares this checkout with a commit; `more`: pairs of an option and its settings."""
    made = parser(doc)
    made.add_argument("commit", metavar="COMMIT")
    made.add_argument("--before", type=pathlib.Path, help="COMMIT's program")
    made.add_argument("--now", type=pathlib.Path, help="HEAD's program")
    made.add_argument("--data", type=pathlib.Path, default=data,
                      help="made by `lockstep data pack` (default: the quickstart's)")
    for name, settings in more:
        made.add_argument(name, **settings)
    options = begin(made)
    if not options.data.exists():
        sys.exit(f"no data in {options.data}: run scripts/quickstart, or name others by --data")
    return options


class Lockstep:
    name = "Lockstep"

    def __init__(self, program, data, steps):
        self.program, self.data = program, data
        self.options = ["--max-steps", steps] if steps else ["--epochs", 1]

    def run(self, scratch, sample_memory=False):
        run = scratch / "run"
        shutil.rmtree(run, ignore_errors=True)
        command = [self.program, "train", "--np", RANKS, "--data", self.data / "train", "--model", "cnn", "--batch", BATCH,
                   "--run", run, "--log-every", LOG_EVERY]
        launched, wall, peak = run_process(command + self.options, os.environ, scratch, sample_memory)
        return {
            "wall time": wall,
            "steady samples/s": steady_rate(run),
            "launch to first step": events_of(run, "first_step")[0]["t"] - launched,
            "peak memory": peak,
        }


def steady_rate(run):
    """Samples per second after the first report: the steps of warming up, as for the peer."""
    reports = events_of(run, "steps")[1:]
    samples = sum(report["samples_per_s"] * report["wall_s"] for report in reports)
    return samples / sum(report["wall_s"] for report in reports)
