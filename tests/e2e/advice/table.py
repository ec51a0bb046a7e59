# SPDX-License-Identifier: Apache-2.0
"""Reads the table of advice: tests/e2e/advice/*.txt.

A row begins with one or more lines `[CODE] FRAGMENT`: a part of a fix as the sources have it, `{}` where a
value is put in, `[-]` where no error code is known. Several such lines share what follows:
  needs: root cores  what the machine must have; without it the row is left out
  make: COMMAND      what the situation needs
  run: COMMAND       prints the advice
  fill: --batch=64 DIR=D/test    values for what the advice leaves open
  do: COMMAND        what the advice means, where the words alone do not say it
  exit: N            of the advised command, where not 0
  aside: WORD        an option or command of the advice that need not be tried here
or by one of these:
  by: FILE NAME      another test executes the advice: NAME stands in FILE
  not: REASON        it cannot be executed here
`let: NAME = TEXT` gives a text a name for all files; @NAME@ stands for it."""
import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
KEYS = ('needs', 'make', 'run', 'fill', 'do', 'exit', 'aside', 'by', 'not')
HEAD = re.compile(r'\[([^\]]+)\] (.+)')
REASONS = ('gpu', 'nccl', 'cluster', 'administrator', 'hardware', 'install', 'bug', 'race', 'slow', 'unseen')


class Row:
    def __init__(self, place):
        self.place, self.advice = place, []
        self.fields = {key: [] for key in KEYS}

    def one(self, key):
        return self.fields[key][0] if self.fields[key] else ''

    @property
    def is_executed(self):
        return bool(self.fields['run'])

    @property
    def fate(self):
        return next((key for key in ('run', 'by', 'not') if self.fields[key]), 'nothing')

    @property
    def name(self):
        return f'{self.place} [{self.advice[0][0]}] {self.advice[0][1]}'


def read_table(folder=FOLDER):
    rows, names, lines = [], {}, []
    for path in sorted(folder.glob('*.txt')):
        lines += [(f'{path.name}:{n}', line.rstrip()) for n, line in enumerate(path.open(), 1)]
    for _, line in lines:
        if line.startswith('let: '):
            name, _, text = line[5:].partition(' = ')
            names[name] = text
    row = None
    for place, line in lines:
        if not line or line.startswith(('#', 'let: ')):
            continue
        head = HEAD.fullmatch(line)
        key, _, text = line.partition(': ')
        if head:
            if row is None or any(row.fields.values()):
                row = Row(place)
                rows.append(row)
            row.advice.append(head.groups())
        elif key in KEYS and row:
            row.fields[key].append(re.sub(r'@(\w+)@', lambda m: f'{names[m.group(1)]}', text))
        else:
            raise SystemExit(f'{place}: not a row: {line}')
    return rows


def pattern(fragment):
    """A fragment as an expression that the printed text matches."""
    return r'.{0,400}?'.join(re.escape(part) for part in fragment.split('{}'))
