# SPDX-License-Identifier: Apache-2.0
"""Runs tests on clusters side by side: most of each is waiting. Every lane has a cluster that its tests take
one after another (LIFE_CLUSTER, see job_life.sh); all lanes have one folder, with data and hashes of undisturbed
runs that are made once."""
import collections
import concurrent.futures
import os
import queue
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.realpath(__file__))

# A command, by what name, at most how long; `keep` is the folder for what explains its failure.
Turn = collections.namedtuple("Turn", "name command limit_s keep")
# `said` is a skipped turn's reason or what a wrong one wrote.
Result = collections.namedtuple("Result", "name state seconds said")


class SideBySide:
    def __init__(self, at_once, folder):
        self.folder, self.children = folder, []
        cache = os.path.join(folder, "cache")
        os.mkdir(cache)
        self.environment = {**os.environ, "TMPDIR": folder, "LIFE_CACHE": cache,
                            "LIFE_OWNER": str(os.getpid())}
        self.clusters = [f"lane-{os.getpid()}-{lane}" for lane in range(at_once)]
        self.free = queue.SimpleQueue()
        for cluster in self.clusters:
            self.free.put(cluster)

    def run(self, turns):
        """The results, in the order of the turns. Whatever happens, no cluster is left."""
        pool = concurrent.futures.ThreadPoolExecutor(len(self.clusters))
        try:
            return list(pool.map(self._run_turn, turns))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in self.children:
                end(child)
            for ending in [take_down(cluster) for cluster in self.clusters]:
                ending.wait()

    def _run_turn(self, turn):
        cluster = self.free.get()
        begin = time.monotonic()
        try:
            code, said = self._run_command(turn, cluster)
        finally:
            self.free.put(cluster)
        state = {0: "right", 77: "SKIPPED"}.get(code, "WRONG")
        result = Result(turn.name, state, time.monotonic() - begin, said)
        print(f"{turn.name}: {state} after {result.seconds:.0f} s", flush=True)
        if state == "WRONG":
            os.makedirs(turn.keep, exist_ok=True)
            with open(os.path.join(turn.keep, f"{turn.name}.txt"), "w") as text:
                text.write(said)
            print(f"{said}\nmore in {turn.keep}", flush=True)
        return result

    def _run_command(self, turn, cluster):
        child = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", *turn.command],
            env={**self.environment, "LIFE_KEEP": turn.keep, "LIFE_CLUSTER": cluster},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True)
        self.children.append(child)
        try:
            said, _ = child.communicate(timeout=turn.limit_s)
            return child.returncode, said
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGUSR1)  # tests of jobs keep their traces then
            wait_for(child, 30)
            return 1, f"no end after {turn.limit_s} s"
        finally:
            end(child)


def wait_for(child, seconds):
    """Whether it has ended within so long."""
    try:
        child.wait(timeout=seconds)
        return True
    except subprocess.TimeoutExpired:
        return False


def end(child):
    """A test that was given up has ten seconds to clean up."""
    if child.poll() is not None:
        return
    os.killpg(child.pid, signal.SIGTERM)
    if not wait_for(child, 10):
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def take_down(cluster):
    """Begins it: the kernel takes a second for each, several at a time."""
    return subprocess.Popen([os.path.join(HERE, "down"), "--name", cluster], stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def cases_of(name):
    """The words of an array of life_cases.sh."""
    script = f'here={HERE}; . "$here/life_cases.sh"; echo "${{{name}[@]}}"'
    told = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    return told.stdout.split()


def executable(program):
    program = os.path.realpath(program)
    if not os.access(program, os.X_OK):
        sys.exit(f"no program '{program}': build it, or name it")
    return program


def exit_when_told():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
