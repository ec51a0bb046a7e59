# SPDX-License-Identifier: Apache-2.0
"""Run directories and configuration files of somebody else: a file of a sound run becomes a pipe, a
device, a link, endless, or says something else, and a command reads it. It must end soon, with
success or an error, in little memory, and without a byte that a terminal obeys."""
import collections
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import frame

MOST_CPU_S = 5
MOST_WALL_S = 30  # on a busy machine; a hang lasts longer
MOST_BYTES = 256 << 20
INTERNAL = 70
ESCAPES = '\x1b]0;pwn\x07\x1b[31m\x9b2J\u202e\u2066\r\n\x7f  fix: pwn'
OBEYED = re.compile(rb'[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\xa8-\xae]|\xe2\x81[\xa6-\xa9]')
SPARSE_BYTES = 1 << 40

READERS = [
    ['status', 'RUN'], ['status', 'RUN', '--json'], ['status', '--all', 'PARENT'], ['logs', 'RUN'],
    ['logs', 'RUN', '--first-error'], ['diagnose', 'RUN'], ['diagnose', 'RUN', '--json'],
    ['report', 'RUN', '--format', 'text'], ['report', 'RUN', '--format', 'json'],
    ['report', 'RUN', '--format', 'markdown'], ['report', 'RUN'],
    ['metrics', 'RUN'], ['metrics', 'RUN', '--format', 'jsonl'],
    ['metrics', 'RUN', '--format', 'prometheus'], ['compare', 'GOOD', 'RUN'], ['scale', 'ONE', 'RUN'],
    ['trace', 'merge', 'RUN'], ['data', 'ledger', 'RUN'], ['ckpt', 'ls', 'RUN'], ['ckpt', 'inspect', 'RUN'],
    ['ckpt', 'verify', 'RUN']]


def files_below(folder):
    return sorted(str((pathlib.Path(at) / name).relative_to(folder)) for at, _, names in os.walk(folder) for name in names)


def state_of(folder):
    """Names and contents, to see whether somebody wrote here."""
    return {name: (folder / name).read_bytes() for name in files_below(folder)}


def spoilt(value, text):
    """The JSON value with `text` in place of each of its own."""
    if isinstance(value, dict):
        return {key: spoilt(inner, text) for key, inner in value.items()}
    if isinstance(value, list):
        return [spoilt(inner, text) for inner in value]
    return text if isinstance(value, str) else value


class Runs:
    def __init__(self, program, folder, chance):
        self.program = program
        self.folder = folder
        self.random = chance
        self.good = folder / 'good-run'
        self.one = folder / 'one-rank'  # for 'scale'
        self.parent = folder / 'runs'
        self.run = self.parent / 'bad'
        self.victim = folder / 'victim'
        self.precious = self.victim / '.tmp-mine/precious'
        self.outcomes = collections.Counter()
        self.failures = []
        self.slowest_s = self.most_cpu_s = 0.0
        self.most_bytes = 0

    def make(self, data):
        for ranks, run in [('2', self.good), ('1', self.one)]:
            frame.must([self.program, 'train', '--np', ranks, '--data', data, '--model', 'mlp', '--max-steps', '12',
                        '--log-every', '2', '--checkpoint-every', '6steps', '--ledger', '--trace', 'steps=2-4', '--run', run])
        self.bait()
        self.untouched = state_of(self.victim)
        self.files = files_below(self.good)
        self.ways = [self.pipe, self.zeros, self.dangling, self.loop, self.victims, self.a_folder,
                     self.endless_file, self.long_line, self.escapes, self.raw_escapes, self.flips,
                     self.deep, self.cut]

    def bait(self):
        shutil.rmtree(self.victim, ignore_errors=True)
        self.precious.parent.mkdir(parents=True)
        self.precious.write_bytes(b'p')

    # What becomes of one file.
    def pipe(self, path, _):
        os.mkfifo(path)

    def zeros(self, path, _):
        path.symlink_to(self.random.choice(['/dev/zero', '/dev/tty', '/dev/full']))

    def dangling(self, path, _):
        path.symlink_to('nowhere')

    def loop(self, path, _):
        path.symlink_to(path.name)

    def victims(self, path, _):
        path.symlink_to(self.precious)

    def a_folder(self, path, _):
        path.mkdir()

    def endless_file(self, path, content):
        with path.open('wb') as out:
            out.write(content)
            out.truncate(SPARSE_BYTES)
            if self.random.random() < 0.5:
                out.seek(0, os.SEEK_END)
                out.write(b'\n' + content)

    def long_line(self, path, content):
        path.write_bytes(content + b'{"event":"log","text":"' + b'x' * (30 << 20) + b'"}\n' + content)

    def escapes(self, path, content):
        lines = []
        for line in content.decode('utf-8', 'replace').splitlines():
            try:
                value = json.loads(line)
                kept = {key: value[key] for key in ('event', 'level', 'phase', 'format')
                        if isinstance(value, dict) and key in value}
                value = spoilt(value, ESCAPES)
                if kept:
                    value.update(kept)
                lines.append(json.dumps(value, ensure_ascii=self.random.random() < 0.5))
            except ValueError:
                lines.append(line)
        text = '\n'.join(lines) + '\n'
        if len(lines) > 1 and path.suffix == '.json':
            text = json.dumps(spoilt(json.loads(content), ESCAPES))
        path.write_bytes(text.encode())

    def raw_escapes(self, path, content):
        marks = [b'\x1b]0;pwn\x07', b'\x9b2J', ESCAPES.encode(), b'\xff\x1b[2J']
        for _ in range(self.random.randint(1, 8)):
            at = self.random.randrange(len(content) + 1)
            content = content[:at] + self.random.choice(marks) + content[at:]
        path.write_bytes(content)

    def flips(self, path, content):
        bad = bytearray(content)
        for _ in range(self.random.randint(1, 20)):
            if bad:
                bad[self.random.randrange(len(bad))] = self.random.randrange(256)
        path.write_bytes(bad)

    def deep(self, path, _):
        path.write_bytes(self.random.choice([b'[' * 3_000_000, b'{"a":' * 500_000, b'[1,' * 900_000]))

    def cut(self, path, content):
        path.write_bytes(content[:self.random.randrange(len(content) + 1)])

    def attempt(self, what, command, environment=None):
        """Runs one command and judges how it ends."""
        begin = time.monotonic()
        out_path = self.folder / 'said'
        with out_path.open('wb') as out:
            child = subprocess.Popen([self.program, *command], stdin=subprocess.DEVNULL, stdout=out,
                                     stderr=out, env=environment, start_new_session=True)
            status = usage = None
            while status is None:
                pid, ended, usage = os.wait4(child.pid, os.WNOHANG)
                if pid != 0:
                    status = os.waitstatus_to_exitcode(ended)
                elif time.monotonic() - begin > MOST_WALL_S:
                    os.killpg(child.pid, signal.SIGKILL)
                    _, _, usage = os.wait4(child.pid, 0)
                    break
                else:
                    time.sleep(0.002)
            child.returncode = status or 0
        said = out_path.read_bytes()
        cpu_s = usage.ru_utime + usage.ru_stime
        if command[0] != 'train':  # which has ranks to start
            self.slowest_s = max(self.slowest_s, time.monotonic() - begin)
            self.most_cpu_s = max(self.most_cpu_s, cpu_s)
        self.most_bytes = max(self.most_bytes, usage.ru_maxrss << 10)
        obeyed = OBEYED.search(said)
        for is_wrong, words in [
                (status is None, 'hangs'), (cpu_s > MOST_CPU_S, f'takes {cpu_s:.1f} s'),
                (status is not None and (status < 0 or status >= 128 or status == INTERNAL),
                 f'exit code {status}'),
                (usage.ru_maxrss << 10 > MOST_BYTES, f'takes {usage.ru_maxrss >> 10} MiB'),
                (obeyed, f'prints {said[max(obeyed.start() - 40, 0):obeyed.end() + 20] if obeyed else b""}'),
                (state_of(self.victim) != self.untouched, "writes into the link's target")]:
            if is_wrong:
                self.failures.append(f'{what}, {" ".join(map(str, command))}: {words}\n'
                                     f'{said[:2000].decode("utf-8", "backslashreplace")}')
        self.bait()
        word = re.search(rb'\b(E\d{3})\b', said)
        self.outcomes[word[1].decode() if status and word else status] += 1

    def one_file(self, number):
        name = self.files[number % len(self.files)]
        way = self.ways[number // len(self.files) % len(self.ways)]
        shutil.copytree(self.good, self.run, symlinks=True)
        path = self.run / name
        content = path.read_bytes()
        path.unlink()
        way(path, content)
        command = [{'RUN': self.run, 'GOOD': self.good, 'ONE': self.one, 'PARENT': self.parent}.get(word, word)
                   for word in READERS[self.random.randrange(len(READERS))]]
        self.attempt(f'case {number}, {name} by {way.__name__}', command)
        shutil.rmtree(self.run)

    def one_folder(self, data, name):
        """A folder of the run is a link, and a training goes on."""
        shutil.copytree(self.good, self.run, symlinks=True)
        path = self.run / name
        shutil.rmtree(path, ignore_errors=True)
        path.symlink_to(self.victim)
        self.attempt(f'{name} a link', ['train', '--np', '2', '--data', data, '--model', 'mlp', '--max-steps',
                                        '14', '--batch', '128', '--ledger', '--run', self.run])
        shutil.rmtree(self.run)

    def one_config(self, number):
        parts = self.random.choice([40, 20_000, 100_000])
        key = self.random.choice(['.', ' . ', '."a\\".".']).join(['a'] * parts)
        text = self.random.choice(
            [f'[{key}]\nb = 1\n', f'[[{key}]]\n', f'{key} = 1\n', f'a = {"[" * parts}', f'a = {{{key} = 1}}',
             'a = ' + '{a.a.a = ' * min(parts, 200), f'a = """{ESCAPES}', f'{ESCAPES} = 1',
             f'"{"k" * parts}" = 1\n' * 2, f'x = """a"""", {key} = 1'])
        file = self.folder / 'home/lockstep/config.toml'
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode()[:1 << 20])
        own = dict(os.environ, XDG_CONFIG_HOME=str(file.parents[1]))
        command = self.random.choice([['config', 'check', file], ['config', 'show', '--config', file],
                                      ['status', self.good]])
        self.attempt(f'config {number}', command, own)

    def one_topology(self, number):
        file = self.folder / 'node.json'
        self.random.choice(self.ways[:9])(file, self.topology)
        self.attempt(f'topology {number}', ['map', '--topology', file, '--ntasks-per-node', '2'])
        file.rmdir() if file.is_dir() and not file.is_symlink() else file.unlink()

    def all(self, data, cases):
        self.make(data)
        file = self.folder / 'node.json'
        frame.run([self.program, 'map', '--save-topology', file, '-np', '1'])
        self.topology = file.read_bytes()
        file.unlink()
        for name in ['ckpt', 'logs', 'logs/i2', 'ledger'][:2 if cases < 200 else 4]:
            self.one_folder(data, name)
        numbers = list(range(len(self.files) * len(self.ways)))
        self.random.shuffle(numbers)
        for number in range(cases):
            if number % 10 == 9:
                self.one_config(number)
            elif number % 10 == 8:
                self.one_topology(number)
            else:
                self.one_file(numbers[number % len(numbers)])

    def bars(self):
        return {'cases': sum(self.outcomes.values()),
                'outcomes': {str(key): times for key, times in sorted(self.outcomes.items(), key=str)},
                'slowest_s': round(self.slowest_s, 2), 'most_cpu_s': round(self.most_cpu_s, 2),
                'most_mib': self.most_bytes >> 20}
