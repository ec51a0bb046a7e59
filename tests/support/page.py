# SPDX-License-Identifier: Apache-2.0
"""Runs a page of docs as it stands: a block of Python that begins with "# NAME.py" becomes that file, a block of sh is run."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# A training is short, and has as many ranks as the page says.
SHORT = {"LOCKSTEP_MAX_STEPS": "3", "LOCKSTEP_BATCH": "24", "LOCKSTEP_OVERSUBSCRIBE": "1"}
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


class Page:
    def __init__(self, name, program, proofs, short=SHORT):
        """proofs: the pattern that a command must say which has a word. short: variables of each 'lockstep train'."""
        program = pathlib.Path(program).resolve()
        self.name, self.proofs, self.short = name, proofs, short
        self.path = f"{program.parent}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"

    def run(self, command, **variables):
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, errors="replace", timeout=300,
                              env={**os.environ, **AS_ROOT, "PATH": self.path, **variables})
        if done.returncode:
            sys.exit(f"{self.name}: {command}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def follow(self, make_data, section="", look=lambda: None):
        """Runs the page, or one section, in a new folder in which make_data(run) has made what the page takes as given.

        Returns how many commands ran, and what look() returned in that folder at the end.
        """
        text = (ROOT / "docs" / self.name).read_text()
        if section:
            text = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
        missing, commands = set(self.proofs), 0
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            make_data(self.run)
            for kind, block in re.findall(r"^```(python|sh)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
                name = re.match(r"# (\w+\.py)\n", block)
                if kind == "python" and name:
                    pathlib.Path(name[1]).write_text(block)
                for command in block.splitlines() if kind == "sh" else ():
                    said = self.run(command, **(self.short if command.startswith("lockstep train") else {}))
                    for word, proof in self.proofs.items():
                        if word in command and not re.search(proof, said, re.DOTALL):
                            sys.exit(f"{self.name}: {command} does not say '{proof}': {said}")
                        if word in command:
                            missing.discard(word)
                    commands += 1
            seen = look()
            os.chdir("/")
        if missing:
            sys.exit(f"{self.name}: no command has {sorted(missing)}")
        return commands, seen
