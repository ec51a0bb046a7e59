# SPDX-License-Identifier: Apache-2.0
"""program_peer's models, exported and run by PyTorch: program_peer_worker.py PROGRAM [MODEL...].

EXPORTER is another interpreter, whose PyTorch exports them; this one's says what is right.
"""

import contextlib
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

import torch
from program_cases import CASES, ROWS, every_case

STEPS = int(os.environ.get("STEPS", "0"))  # to time, besides
EXPORTER = os.environ.get("EXPORTER", "")


def raw(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def step(module, inputs):
    out = module(*inputs)
    outputs = out.values() if isinstance(out, dict) else [out]
    sum(one.float().square().mean() for one in outputs).backward()


def tied_names(module):
    """For each parameter all of its names."""
    groups = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(name)
    return {name: names for names in groups.values() for name in names}


def wanted_of(exported, inputs, lines, tied):
    """The bytes that Python has for each 'gradient NAME' and 'buffer NAME'."""
    module = exported.module()
    parameters = dict(module.named_parameters(remove_duplicate=False))
    torch.manual_seed(1)
    step(module, inputs)
    buffers = dict(module.named_buffers())
    found = []
    for line in lines:
        kind, name = line.split()
        if kind == "gradient":
            # A file that is loaded has tied weights as two tensors of the same values.
            twins = {id(parameters[one]): parameters[one] for one in tied[name]}.values()
            grads = [p.grad for p in twins if p.grad is not None]
            grad = sum(grads[1:], grads[0]) if grads else None
            found.append(raw(torch.zeros_like(parameters[name]) if grad is None else grad))
        else:
            found.append(raw(buffers[name]))
    learning = {tied[name][0] for name, p in parameters.items() if p.requires_grad}
    return b"".join(found), len(learning)


def eager_ms(module, inputs):
    times = []
    for _ in range(STEPS):
        begin = time.perf_counter()
        step(module, inputs)
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times) if times else 0


def export(case, decomposed):
    """Writes net.pt2 and its inputs."""
    torch.manual_seed(0)
    module, sample = case()
    batch = torch.export.Dim("batch", min=2, max=4096)
    exported = torch.export.export(module, sample, dynamic_shapes=({0: batch},) * len(sample))
    if decomposed:
        exported = exported.run_decompositions()
    torch.export.save(exported, "net.pt2")
    torch.save([one[: ROWS - 1].contiguous() for one in sample], "inputs.pth")


def compared(program, name, case, decomposed):
    if EXPORTER:
        words = [EXPORTER, __file__, "--export", name, str(int(decomposed))]
        subprocess.run(words, check=True, stderr=subprocess.DEVNULL)
    else:
        export(case, decomposed)
    exported = torch.export.load("net.pt2")
    inputs = torch.load("inputs.pth")
    words = []
    for i, one in enumerate(inputs):
        with open(f"input{i}", "wb") as file:
            file.write(raw(one))
        kind = "f32" if one.is_floating_point() else "i64"
        words.append(f"input{i}:{kind}:{','.join(map(str, one.shape))}")
    mode = "train" if case()[0].training else "as-exported"
    ours = subprocess.run([program, "net.pt2", "out", str(STEPS), mode, *words], capture_output=True, text=True)
    if ours.returncode:
        print(f"{name}: {ours.stderr}")
        return False
    *lines, ms = ours.stdout.splitlines()
    wanted, learning = wanted_of(exported, inputs, lines, tied_names(case()[0]))
    with open("out", "rb") as file:
        equal = file.read() == wanted
    all_there = sum(line.startswith("gradient") for line in lines) == learning
    times = f", {ms} (Python eager {eager_ms(exported.module(), inputs):.3f})" if STEPS else ""
    print(f"{name}: {len(lines)} tensors {'equal' if equal and all_there else 'DIFFER'}{times}", flush=True)
    return equal and all_there


def main():
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    program, *names = sys.argv[1:]
    every = every_case()
    if program == "--export":
        export(every[names[0]], names[1] == "1")
        return 0
    program = os.path.abspath(program)
    every = CASES if EXPORTER else every
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        results = [compared(program, name, every[name], False) for name in names or every]
        if not names:
            results += [compared(program, f"{n} decomposed", CASES[n], True) for n in ("mlp", "unet")]
    print(f"program_peer: {sum(results)} of {len(results)} have Python's bits", flush=True)
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
