# SPDX-License-Identifier: Apache-2.0
"""Ways to ruin a training or to slow one of its ranks down, each with what must be said of it then."""
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import threading
import time

import frame

TWO_HOSTS = frame.ROOT / "tests/support/two_hosts"
SLOW_S = 8  # a slow rank is looked at for so long,
MOST_SLOW_S = 60  # or longer: who else has the cores may hide it for a while


@dataclasses.dataclass
class Expected:
    """What `logs --first-error` and `report` must name."""
    rank: int
    host: str
    cause: str  # code, trouble or StragglerCause
    is_slow: bool = False


class Skipped(Exception):
    """This machine cannot do that."""


class Training:
    """One that goes on for long: on ranks of this machine, or on hosts that exist only meanwhile."""

    def __init__(self, options, data, run, patience="1m", ranks=0, hosts=None, prepare="", variables=None):
        words = [options.program, "train", "--data", data, "--run", run, "--model", "mlp", "--batch", "24",
                 "--virtual-ranks", "4", "--log-every", "5", "--checkpoint-every", "never", "--comm-timeout", patience,
                 "--data-mode", "stream", "--max-steps", "1000000"]
        if hosts:  # `prepare` is done where a rank begins: in its host's namespaces
            words = [TWO_HOSTS, ",".join(f"{host}:1" for host in hosts), "--", "mpirun", "--bind-to", "none",
                     "bash", "-c", f'{prepare}; exec "$@"', "prepare", *words]
        else:
            words += ["--np", str(ranks), "--oversubscribe"]
        self.run, self.options = run, options
        self.output = pathlib.Path(f"{run}.output")
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen(words, stdout=output, stderr=output, env={**os.environ, **(variables or {})})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """However this goes, nothing stays."""
        while rest := processes_of(self.run):
            for pid in rest.values():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        self.process.wait()

    def wait_for_steps(self):
        metrics = pathlib.Path(self.run, "metrics.jsonl")
        wait_for(lambda: self.process.poll() is not None or (metrics.exists() and metrics.stat().st_size > 0), 60, self.output)
        if self.process.poll() is not None:
            raise SystemExit(f"causes: the training does not begin:\n{self.output.read_text()[-2000:]}")

    def wait(self):
        self.process.wait(timeout=90)
        wait_for(lambda: not processes_of(self.run), 30, self.output)

    def stop(self):
        frame.run([self.options.program, "stop", self.run, "--now"], timeout=60)
        self.wait()


def wait_for(condition, seconds, output):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"causes: what is waited for does not come:\n{output.read_text()[-2000:]}")
        time.sleep(0.02)


def processes_of(run):
    """{rank: process} of a training; the processes above the ranks as -1, -2, ..."""
    found = {}
    for pid in frame.processes_with(run):
        with contextlib.suppress(OSError):
            rank = re.search(rb"OMPI_COMM_WORLD_RANK=(\d+)", pathlib.Path(f"/proc/{pid}/environ").read_bytes())
            found[int(rank[1]) if rank else -1 - len(found)] = pid
    return found


def answers_of(options, run):
    """Of `logs --first-error`, of `report` about an error, and of `report` about the slowest rank."""
    def asked(*words):
        return json.loads(frame.run([options.program, *words], timeout=60).out)
    report = asked("report", run, "--format", "json")
    return asked("logs", run, "--first-error", "--json"), report["cause"] or {}, (report["stragglers"] or [{}])[0]


def wrong_answers(options, run, expected):
    """Those that do not name rank, node and cause."""
    logs, error, slow = answers_of(options, run)
    def is_right(answer):
        causes = [answer.get(key) for key in ("code", "trouble", "cause")]
        return (answer.get("rank"), answer.get("host")) == (expected.rank, expected.host) and expected.cause in causes
    answers = {"logs": logs, "report": slow if expected.is_slow else error}
    return {who: answer for who, answer in answers.items() if not is_right(answer)}


# Errors: they end the training.

def signalled(number, cause):
    def ruin(options, data, run):
        victim = options.random.randrange(3)
        with Training(options, data, run, patience="8s", ranks=3) as training:
            training.wait_for_steps()
            time.sleep(options.random.uniform(0, 0.5))
            os.kill(processes_of(run)[victim], number)
            training.wait()
        expected = Expected(victim, socket.gethostname(), cause)
        return expected, wrong_answers(options, run, expected)
    return ruin


def bad_file(options, data, run):
    """One of two nodes has another copy of a shard, which is damaged."""
    hosts, victim = ("a", "b"), options.random.randrange(2)
    shard = sorted(pathlib.Path(data).glob("*.h5"))[0]
    damaged = f"{run}.damaged"
    shutil.copy2(shard, damaged)
    with open(damaged, "r+b") as file:
        file.seek(int(shard.stat().st_size * options.random.uniform(0.3, 0.9)))
        file.write(b"damage")
    with Training(options, data, run, hosts=hosts, prepare=on_host(hosts[victim], "mount", "--bind", damaged, shard)) as training:
        training.wait()
    expected = Expected(victim, hosts[victim], "E213")
    return expected, wrong_answers(options, run, expected)


def on_host(host, *words):
    """Shell that runs `words` there, and fails where they do."""
    return f'if [[ $(hostname) == {host} ]]; then {shlex.join(map(str, words))} || exit; fi'


# Slowness: the training goes on until it is told to end.

def look_at_slow(options, training, expected, meanwhile=True):
    """While it goes on, and afterwards."""
    end = time.monotonic() + MOST_SLOW_S
    time.sleep(SLOW_S)
    while wrong := wrong_answers(options, training.run, expected) if meanwhile else {}:
        if time.monotonic() > end:
            break
        time.sleep(2)
    wrong = {f"{who}, meanwhile": answer for who, answer in wrong.items()}
    training.stop()
    return expected, wrong | wrong_answers(options, training.run, expected)


def quota(options, data, run):
    """A rank has a fifth of a core's time."""
    victim = options.random.randrange(2)
    with Training(options, data, run, ranks=2) as training:
        training.wait_for_steps()
        expected = Expected(victim, socket.gethostname(), "cores", is_slow=True)
        with fifth_of_a_core(processes_of(run)[victim]) as is_quota:
            return look_at_slow(options, training, expected, meanwhile=is_quota)  # else it may be found stopped


def slow_data(options, data, run):
    """A rank's storage is slow: 1 MB a second, of which a step takes 37 KB."""
    victim = options.random.randrange(2)
    variables = {"LD_PRELOAD": options.slow_reads, "SLOW_READS_RANK": str(victim), "SLOW_READS_BYTES_PER_S": "1e6"}
    with Training(options, data, run, ranks=2, variables=variables) as training:
        training.wait_for_steps()
        return look_at_slow(options, training, Expected(victim, socket.gethostname(), "data", is_slow=True))


def slow_link(options, data, run):
    """A node of three sends 100 Mbit a second at most."""
    throttle = ("tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "100mbit", "burst", "64kb", "latency", "200ms")
    if subprocess.run([TWO_HOSTS, "a:1", "--", *throttle], capture_output=True).returncode:
        raise Skipped("no link can be throttled here (tc with tbf)")
    hosts, victim = ("a", "b", "c"), options.random.randrange(3)
    with Training(options, data, run, hosts=hosts, prepare=on_host(hosts[victim], *throttle)) as training:
        training.wait_for_steps()
        return look_at_slow(options, training, Expected(victim, hosts[victim], "link", is_slow=True))


@contextlib.contextmanager
def fifth_of_a_core(pid):
    """Whether by a control group; where none can be made, the process is stopped for the rest of the time."""
    group = quota_group()
    if group is None:
        print("no control group with a quota can be made here: SIGSTOP and SIGCONT stand in for it", flush=True)
        with stopped_four_fifths_of_the_time(pid):
            yield False
        return
    try:
        (group / "cgroup.procs").write_text(str(pid))
        yield True
    finally:
        for process in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):  # it has ended
                (group.parent / "cgroup.procs").write_text(process)
        group.rmdir()


def quota_group():
    """A new control group with a fifth of a core's time; nothing where none can be made."""
    for root, file, text in ((pathlib.Path("/sys/fs/cgroup/cpu"), "cpu.cfs_quota_us", "20000"),
                             (pathlib.Path("/sys/fs/cgroup"), "cpu.max", "20000 100000")):
        group = root / f"lockstep-causes-{os.getpid()}"
        try:
            group.mkdir()
            try:
                with open(group / file, "r+") as limit:  # made by the kernel, or there is no such controller
                    limit.write(text)
                return group
            except OSError:
                group.rmdir()
        except OSError:
            continue
    return None


@contextlib.contextmanager
def stopped_four_fifths_of_the_time(pid):
    """In pieces as those of a quota."""
    is_over = threading.Event()
    def stop_and_go():
        while not is_over.wait(0.02):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                time.sleep(0.08)
                os.kill(pid, signal.SIGCONT)
    thread = threading.Thread(target=stop_and_go)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def needs_hosts(way):
    def checked(options, data, run):
        if subprocess.run([TWO_HOSTS, "a:1", "--", "true"], capture_output=True).returncode == 77:
            raise Skipped("this user cannot make hosts (network namespaces) here")
        return way(options, data, run)
    return checked


WAYS = {"killed": signalled(signal.SIGKILL, "rank dead"), "file": needs_hosts(bad_file), "quota": quota,
        "crashed": signalled(signal.SIGSEGV, "rank dead"), "data": slow_data, "link": needs_hosts(slow_link),
        "stopped": signalled(signal.SIGSTOP, "rank stopped")}
