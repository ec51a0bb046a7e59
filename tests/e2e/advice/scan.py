# SPDX-License-Identifier: Apache-2.0
"""Finds the advice that the sources can print: the texts of "fix" in errors, warnings, the doctor's
checks and the report.

What counts as advice: the fourth argument of an error, whatever is assigned to a `fix`, `advice` or
`command`, that member of a table's row, and what follows "fix: " in a text. Names in such an
expression are followed to the functions, variables and parameters that they stand for. Texts come
back with `{}` where a value is put in."""
import re
from pathlib import Path

TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/'
    r'|(?P<raw>R"(?P<d>[^( ]*)\((?P<rawtext>.*?)\)(?P=d)")'
    r'|(?P<text>"(?:[^"\\\n]|\\.)*")'
    r"|'(?:[^'\\\n]|\\.)+'|(?P<name>[A-Za-z_]\w*)|(?P<number>\d[\w.']*)"
    r'|::|->|(?P<sign>[^\s\w])', re.S)
CODE = re.compile(r'E[1-7]\d\d')
ESCAPE = {'n': '\n', 't': '\t', '"': '"', '\\': '\\', "'": "'"}
OPEN, CLOSE = '([{', ')]}'
ADVICE_NAMES = {'fix', 'advice', 'command'}
WORDS = {'if', 'for', 'while', 'switch', 'return', 'catch', 'sizeof', 'const', 'auto', 'std', 'fmt',
         'format', 'string', 'string_view', 'join', 'to_string', 'size', 'front', 'back', 'empty',
         'begin', 'end', 'value', 'min', 'max', 'true', 'false', 'static_cast', 'path', 'name',
         'data', 'c_str', 'text', 'settings', 'options', 'model', 'plain_text', 'printable', 'train_command'}


class Tokens:
    """One file's tokens as (kind, text); adjacent texts are one."""

    def __init__(self, path, source):
        self.path, self.kinds, self.texts, self.lines = path, [], [], []
        line, last = 1, 0
        for match in TOKEN.finditer(source):
            line += source.count('\n', last, match.start())
            last = match.start()
            kind = match.lastgroup if match.lastgroup not in ('rawtext', 'd') else 'raw'
            text = match.group(0)
            if text.startswith(('//', '/*')):
                continue
            if kind == 'raw':
                kind, text = 'text', match.group('rawtext')
            elif kind == 'text':
                text = re.sub(r'\\(.)', lambda m: ESCAPE.get(m.group(1), m.group(1)), text[1:-1])
            if kind == 'text' and self.kinds and self.kinds[-1] == 'text':
                self.texts[-1] += text
                continue
            self.kinds.append(kind or 'other')
            self.texts.append(text)
            self.lines.append(line)
        self.ends = self._groups()
        self.places = {}
        for i, text in enumerate(self.texts):
            if self.kinds[i] == 'name':
                self.places.setdefault(text, []).append(i)

    def _groups(self):
        ends, stack = {}, []
        for i, (kind, text) in enumerate(zip(self.kinds, self.texts)):
            if kind != 'sign':
                continue
            if text in OPEN:
                stack.append(i)
            elif text in CLOSE and stack:
                ends[stack.pop()] = i
        return ends

    def arguments(self, start):
        """The ranges between the commas of the group that opens at `start`."""
        end, begin, i, found = self.ends.get(start, start), start + 1, start + 1, []
        while i < end:
            if self.kinds[i] == 'sign' and self.texts[i] in OPEN:
                i = self.ends.get(i, i)
            elif self.kinds[i] == 'sign' and self.texts[i] == ',':
                found.append((begin, i))
                begin = i + 1
            i += 1
        return found + [(begin, end)] if end > begin else found

    def until(self, start, signs):
        """The range from `start` to the first of `signs` outside of groups, or to its group's end."""
        i = start
        while i < len(self.texts):
            if self.kinds[i] == 'sign':
                if self.texts[i] in signs or self.texts[i] in CLOSE:
                    break
                if self.texts[i] in OPEN:
                    i = self.ends.get(i, i)
            i += 1
        return start, i

    def is_sign(self, i, sign):
        return 0 <= i < len(self.texts) and self.kinds[i] == 'sign' and self.texts[i] == sign


class Scan:
    def __init__(self, root):
        self.root = root
        self.files = [Tokens(path, path.read_text())
                      for path in [*sorted((root / 'src').rglob('*')), *sorted((root / 'include').rglob('*'))]
                      if path.suffix in ('.cpp', '.hpp', '.inl')
                      and path.name != 'error_catalog.cpp' and 'selftest' not in path.parts]
        self.found = {}  # text -> (codes, "file:line")
        self.seen = set()
        self.functions, self.calls, self.rows = {}, {}, {}
        self.functions_of = {file.path: [] for file in self.files}
        for file in self.files:
            self._index(file)
        for file in self.files:
            self._errors(file)
            self._assignments(file)
            self._rows_of_tables(file)
            self._warnings(file)

    def _index(self, file):
        """Functions by name with parameters and body, calls by name, rows that have a `fix`."""
        for i, name in enumerate(file.texts):
            if file.kinds[i] != 'name':
                continue
            if name == 'struct' and file.kinds[i + 1] == 'name':
                self._index_struct(file, i)
            opening = i + 1
            if file.is_sign(opening, '=') and file.is_sign(opening + 1, '['):  # a lambda's name
                opening = file.ends.get(opening + 1, opening) + 1
            if not file.is_sign(opening, '(') or name in WORDS:
                continue
            self.calls.setdefault(name, []).append((file, opening))
            body = file.ends.get(opening, opening) + 1
            while body < len(file.texts) and file.texts[body] in ('const', 'noexcept', 'override'):
                body += 1
            if file.texts[body:body + 1] == ['->']:
                body = file.until(body, ';{')[1]
            if file.is_sign(body, '{'):
                self.functions.setdefault(name, []).append((file, opening, body))
                self.functions_of[file.path].append((name, opening, body))

    def _index_struct(self, file, i):
        start = i + 2
        if not file.is_sign(start, '{'):
            return
        position, j = 0, start + 1
        while j < file.ends[start]:
            begin, end = file.until(j, ';{')
            if any(file.is_sign(k, '(') for k in range(begin, end)) or 'static' in file.texts[begin:end]:
                j = file.ends.get(end, end) + 1
                continue
            names = [k for k in range(begin, end) if file.kinds[k] == 'name'
                     and (k + 1 == end or file.texts[k + 1] in (',', '=', ';', '{'))
                     and file.texts[k - 1] != '=' and file.texts[k - 1] != '::']
            for k in names:
                if file.texts[k] in ADVICE_NAMES:
                    self.rows.setdefault(file.texts[i + 1], []).append(
                        (position, str(file.path) if file.path.suffix == '.cpp' else ''))
                position += 1
            j = file.ends.get(end, end) + 1
            while file.is_sign(j, ';') or file.is_sign(j, ','):
                j += 1

    def _errors(self, file):
        for start in file.ends:
            if not (file.is_sign(start, '(') or file.is_sign(start, '{')):
                continue
            arguments = file.arguments(start)
            if file.texts[start - 1] == 'check_given' and len(arguments) == 3:
                self._read(file, *arguments[2], 'E105')
            if len(arguments) < 4:
                continue
            if file.texts[start - 1] == 'check_fits':
                self._read(file, *arguments[3], 'E106')
            if file.texts[start - 1] == 'check':
                arguments = arguments[1:]  # the condition
            if len(arguments) < 4:
                continue
            first = range(*arguments[0])
            if any(file.is_sign(k, ';') for k in first):
                continue  # a block, not a list
            codes = [file.texts[k] for k in first
                     if file.kinds[k] == 'text' and CODE.fullmatch(file.texts[k])]
            if codes or file.texts[start - 1] == 'Error':
                self._read(file, *arguments[3], '|'.join(codes) or '-')

    def _assignments(self, file):
        for i, name in enumerate(file.texts):
            if file.kinds[i] != 'name' or name not in ADVICE_NAMES:
                continue
            if file.is_sign(i + 1, '=') and not file.is_sign(i + 2, '='):
                self._read(file, *file.until(i + 2, ',;'), '-')
            elif file.is_sign(i + 1, '+') and file.is_sign(i + 2, '='):
                self._read(file, *file.until(i + 3, ';'), '-')

    def _rows_of_tables(self, file):
        for start in file.ends:
            if not file.is_sign(start, '{'):
                continue
            arguments = file.arguments(start)
            if any(file.is_sign(begin, '.') for begin, _ in arguments) or \
                    all(file.is_sign(begin, '{') for begin, _ in arguments):
                continue
            for name, places in self.rows.items():
                for position, owner in places:
                    is_named = file.texts[start - 1] == name
                    is_local = owner == str(file.path) and file.texts[start - 1] in ('{', ',', 'return', '(')
                    if (is_named or is_local) and len(arguments) > position:
                        code = file.texts[arguments[0][0]]
                        self._read(file, *arguments[position], code if CODE.fullmatch(code) else '-')

    def _warnings(self, file):
        for i, kind in enumerate(file.kinds):
            if kind == 'text' and 'fix: ' in file.texts[i]:
                self._note(file, i, file.texts[i].split('fix: ', 1)[1], '-')

    def _note(self, file, i, text, code):
        if file.path.name == 'setting_table.cpp' and code == '-':
            return  # an option's help
        text = re.sub(r'\{\{|\}\}', lambda m: m.group(0)[0], re.sub(r'(?<!\{)\{(?!\{)[^{}]*\}', '{}', text))
        text = ' '.join(text.split())
        if text:
            codes, _ = self.found.setdefault(text, (set(), f'{file.path.relative_to(self.root)}:{file.lines[i]}'))
            codes.update(code.split('|'))

    def _read(self, file, begin, end, code, depth=0):
        """Texts of an expression, and of what its names stand for."""
        if (id(file), begin, code) in self.seen or depth > 4:
            return
        self.seen.add((id(file), begin, code))
        i = begin
        while i < end:
            kind, text = file.kinds[i], file.texts[i]
            if kind == 'text':
                self._note(file, i, text, code)
            elif kind == 'name' and text == 'Error' and file.is_sign(i + 1, '('):
                i = file.ends.get(i + 1, i)  # read by itself
            elif kind == 'name' and text not in WORDS:
                if text == 'fix' and file.is_sign(i + 2, ')') or \
                        file.texts[i - 1:i + 1] == ['.', 'what']:
                    pass  # another error's advice, or what it says
                elif file.is_sign(i + 1, '('):
                    self._follow_function(file, i, code, depth)
                else:
                    self._follow_variable(file, i, text, code, depth)
            i += 1

    def _follow_function(self, file, i, code, depth):
        name, given = file.texts[i], len(file.arguments(i + 1))
        there = [f for f in self.functions.get(name, []) if len(f[0].arguments(f[1])) >= given]
        near = [f for f in there if f[0] is file] or \
            [f for f in there if f[0].path.parent == file.path.parent] or there
        for other, _, body in near if len(near) <= 3 else []:
            i = body
            while i < other.ends.get(body, body):
                if other.texts[i] == 'return' and other.kinds[i] == 'name':
                    self._read(other, *other.until(i + 1, ';'), code, depth + 1)
                i += 1

    def _follow_variable(self, file, i, name, code, depth):
        """To the calls of the innermost function with a parameter of this name, or to what is assigned."""
        around = [(body, function, self._position(file, opening, name))
                  for function, opening, body in self.functions_of[file.path]
                  if body < i < file.ends.get(body, body)]
        around = [found for found in around if found[2] is not None]
        if around:
            _, function, position = max(around)
            for other, opening in self.calls.get(function, []):
                if other.path.parent != file.path.parent or other.is_sign(other.ends.get(opening, 0) + 1, '{'):
                    continue
                arguments = other.arguments(opening)
                if len(arguments) > position:
                    self._read(other, *arguments[position], code, depth + 1)
            return
        for k in file.places.get(name, []):
            if file.texts[k - 1] in ('.', '->', '::'):
                continue
            if file.is_sign(k + 1, '=') and not file.is_sign(k + 2, '='):
                self._read(file, *file.until(k + 2, ';,'), code, depth + 1)
            elif file.is_sign(k + 1, '+') and file.is_sign(k + 2, '='):
                self._read(file, *file.until(k + 3, ';'), code, depth + 1)

    @staticmethod
    def _position(file, opening, name):
        for position, (begin, end) in enumerate(file.arguments(opening)):
            if end - begin >= 2 and file.texts[end - 1] == name and file.kinds[end - 1] == 'name':
                return position
            if name in file.texts[begin:end] and '=' in file.texts[begin:end]:
                return position
        return None


COMMANDS = re.compile(
    r"(?<![\w-])--?[a-z][\w-]*|\blockstep [a-z]|'lockstep|\b(?:mpirun|srun|sbatch|scontrol|sacctmgr|ulimit|"
    r"unset|export|chmod|python3?|pip|ptrepack|kill -|nvidia-smi|cmake|module load|LOCKSTEP_|OMPI_|NCCL_|"
    r"did you mean|OMP_|HDF5_PLUGIN|scripts/)|\brm |torch\.|\bmpiexec\b")


def advice_of(root):
    """{text: (codes, "file:line")} of all advice below `root` that names a command, an option or a variable;
    no codes where none is known."""
    return {text: (codes - {'-'}, place) for text, (codes, place) in Scan(Path(root)).found.items()
            if COMMANDS.search(text)}
