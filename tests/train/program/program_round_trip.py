# SPDX-License-Identifier: Apache-2.0
"""A model from Python to Lockstep and back: program_round_trip.py LOCKSTEP.

The printed script exports a class that has all kinds of tensors, and one that cannot be copied. After some steps of
training, both kinds of export must give the former the weights with which Lockstep itself predicts. Classes with
parameters that are not f32 train after the change that their refusal names. What torch.export drops, or keeps of the
training alone, is said; the forms that are advised are exported without a word.
"""

import collections
import contextlib
import importlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest.mock

import numpy
import torch
import torch.nn.functional as F
from torch import nn

SAMPLES = 600


class Net(nn.Module):
    """With a frozen parameter, tied ones, buffers that nothing writes, and weights that are not contiguous."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.drop = nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Dropout(0.25)
        self.conv.to(memory_format=torch.channels_last)
        self.fc, self.tied, self.last = nn.Linear(72, 72), nn.Linear(72, 72), nn.Linear(72, 4)
        self.tied.weight = self.fc.weight
        self.frozen = nn.Parameter(torch.full((4,), 1.5), requires_grad=False)
        self.register_buffer("mask", torch.tensor([False, False, False, True]))
        self.register_buffer("places", torch.arange(3))
        self.register_buffer("wide", torch.tensor([2.0], dtype=torch.float64))
        self.register_buffer("brief", torch.tensor([1.0]), persistent=False)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2).flatten(1)
        x = self.drop(F.relu(self.tied(F.relu(self.fc(x)))))
        x = self.last(x) * self.frozen * self.wide.float() * self.brief + self.places.sum()
        return x.masked_fill(self.mask, -9.0)


class Other(nn.Module):
    """Its one parameter is of another type, or the same in pairs."""

    def __init__(self, dtype, in_pairs=False):
        super().__init__()
        w = 0.1 * torch.randn(4, 36, dtype=dtype)
        self.in_pairs, self.w = in_pairs, nn.Parameter(torch.view_as_real(w) if in_pairs else w)

    def forward(self, x):
        w = torch.view_as_complex(self.w) if self.in_pairs else self.w
        out = x.flatten(1).to(w.dtype) @ w.T
        return out.abs() if out.is_complex() else out.float()


class Uncopied(nn.Module):
    """Cannot be copied as it is made: lazy layers, and one whose weight is computed. Its second input is by keyword only."""

    def __init__(self):
        super().__init__()
        self.fc, self.beside, self.last = nn.LazyLinear(8), nn.LazyLinear(8), nn.utils.weight_norm(nn.Linear(8, 4))

    def forward(self, x, *, scale):
        x = x.flatten(1)
        return self.last(self.fc(x) + self.beside(x) if self.training else self.fc(x)) * scale


class Refused(nn.Module):
    """PyTorch's own code is in the way, not the user's line."""

    def __init__(self):
        super().__init__()
        self.norm, self.centres = nn.BatchNorm1d(36, momentum=None), nn.Parameter(torch.randn(30, 36))

    def forward(self, x):
        x = x.flatten(1)
        return torch.cdist(x, self.centres) if x.shape[1] == 36 else self.norm(x[:, :36])


def unread():
    """In the place of a program that PyTorch writes and does not read."""
    def fails(path):
        raise AttributeError("no such operator\nand more")
    torch.export.load = fails
    return nn.Linear(6, 4)


class Small(nn.Module):
    """What the script says of `body`, which computes its outputs. A name begins with `it_`, and is below."""

    def __init__(self, body):
        super().__init__()
        self.a, self.b, self.norm, self.body, self.steps = nn.Linear(6, 4), nn.Linear(4, 4), nn.BatchNorm1d(4), body, 0

    def forward(self, x):
        return self.body(self, x)


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


class FrozenNorm(Small):
    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        return self


class Packed(Small):
    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, self.body(lengths).cpu(), batch_first=True, enforce_sorted=False)
        return self.layer(packed)[1][0]

    def __init__(self, body):
        super().__init__(body)
        self.layer = nn.GRU(6, 4, batch_first=True)


def dropped_path(net, x):
    x = net.a(x)
    return x * x.new_empty(x.shape[0], 1).bernoulli_(0.5) if net.training else x


def counted(net, x):
    net.steps += 1
    return net.a(x) * (1 + 1e-7 * net.steps)


def derivative(net, x):
    x = x.detach().requires_grad_(True)
    return torch.autograd.grad(net.b(net.a(x).tanh()).sum(), x, create_graph=True)[0]


def reversed_before_zeros():
    net = Small(lambda net, x: net.b(Reversed.apply(net.a(x))))
    nn.init.zeros_(net.b.weight)
    return net


def hooked():
    net = Small(lambda net, x: net.b(net.a(x)))
    net.a.weight.register_hook(lambda gradient: -gradient)
    return net


def masked():
    net = Small(lambda net, x: net.a(x) * net.mask)
    net.mask = nn.Parameter(torch.ones(4, dtype=torch.bool), requires_grad=False)
    return net


Pair = collections.namedtuple("Pair", "first second")
GRADIENT = "the program's gradient of a.weight differs from the model's"
EQUAL = "equal for 3 and 7 samples"
DROPPED = r"than net\.eval\(\)[^\n]*\n  where self\.training is read, [^\n]*program_round_trip\.py, line \d+\n  .*for DropPath write"
DERIVATIVE = r"no derivatives that forward\(\) takes, at [^\n]*program_round_trip\.py, line \d+\n"
SAID = {  # (what is exported, what the script says, as a pattern)
    "it_reverses": (lambda: Small(lambda net, x: net.b(Reversed.apply(net.a(x)))), GRADIENT),
    "it_reverses_before_zeros": (reversed_before_zeros, GRADIENT),
    "it_reverses_as_advised": (lambda: Small(lambda net, x: net.b(-net.a(x) + (2 * net.a(x)).detach())), "^it_.*" + EQUAL),
    "it_has_hooks": (hooked, GRADIENT),
    "it_has_no_gradient": (lambda: Small(lambda net, x: (x > 0).float()), r"^it_.*outputs \[n, 6\]; " + EQUAL),
    "it_drops_paths": (lambda: Small(dropped_path), DROPPED),
    "it_drops_as_advised": (lambda: Small(lambda net, x: net.a(x) * F.dropout(x.new_ones(x.shape[0], 1), 0.5, net.training)),
                            "^it_.*" + EQUAL),
    "it_keeps_norms_frozen": (lambda: FrozenNorm(lambda net, x: net.norm(net.a(x))),
                              r"evaluation mode: norm\n.*--model-mode as-exported\n"),
    "it_counts": (lambda: Small(counted), r"forward\(\) changes steps, .*register_buffer\('steps', torch\.tensor\(0\)\)\n"),
    "it_returns_a_pair": (lambda: Small(lambda net, x: Pair(x, net.a(x))), "returns a program_round_trip.Pair, which is no"),
    "it_returns_a_number": (lambda: Small(lambda net, x: {"y": net.a(x), "n": x.shape[1]}), "returns an int, which is no tensor"),
    "it_returns_none_too": (lambda: Small(lambda net, x: (net.a(x), None)), r"^it_.*outputs \[n, 4\]; " + EQUAL),
    "it_keeps_a_frozen_mask": (masked, "^it_.*" + EQUAL),
    "it_needs_arguments": (Small, r"it_needs_arguments\(body\) needs arguments\n  fix: .*def make_net\(\): return it_\w+\(\.\.\.\)"),
    "it_is_wrapped": (lambda: nn.DataParallel(hooked()), r"fix: name a function that returns net\.module$"),
    "it_is_compiled": (lambda: torch.compile(hooked()), r"fix: name a function that returns net\._orig_mod$"),
    "it_takes_derivatives": (lambda: Small(derivative), DERIVATIVE),
    "it_takes_torch_func": (lambda: Small(lambda net, x: torch.func.grad(lambda y: net.a(y).tanh().sum())(x)), DERIVATIVE),
    "it_has_one_loss": (lambda: Small(lambda net, x: net.a(x).square().mean()), r"outputs \[\]; " + EQUAL),
    "it_packs": (lambda: Packed(lambda lengths: lengths.clamp(min=1)), "takes no packed sequences"),
    "it_packs_nothing": (lambda: Packed(lambda lengths: lengths), r"write lengths\.clamp\(min=1\) in forward\(\)"),
}
globals().update({name: make for name, (make, _) in SAID.items()})


class Kept:
    """As transformers' language models return what later tokens need."""


Kept.__module__ = "transformers.cache_utils"


@torch.library.custom_op("transformers::grouped_mm_fallback", mutates_args=())
def grouped(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@grouped.register_fake
def like(x):
    return torch.empty_like(x)


class OfTransformers(nn.Module):
    """Refused with what transformers has for it; a number of its own stands for the data."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(6, 4)

    def forward(self, x):
        return {1: lambda: (self.last(x), Kept()), 2: lambda: self.last(grouped(x))}[x.shape[1]]()


def ended(*words):
    done = subprocess.run([sys.argv[1], *words], capture_output=True, text=True, env={
        **os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "LOCKSTEP_OVERSUBSCRIBE": "1"})
    return done.returncode, done.stdout, done.stderr


def lockstep(*words):
    code, said, errors = ended(*words)
    if code:
        sys.exit(f"{sys.argv[0]}: {' '.join(words)}: {said}{errors}")
    return said


def export(model, out, *given):
    """As the printed script does, of FILE:NAME."""
    pathlib.Path("lockstep_export.py").write_text(lockstep("export-script"))
    words = [model, *(f"--input={one}" for one in given), "--out", out]
    subprocess.run([sys.executable, "-B", "lockstep_export.py", *words], check=True, stderr=subprocess.DEVNULL)


def refusal(*words):
    return subprocess.run([sys.executable, "-B", "lockstep_export.py", *words, "--out", "refused.pt2"],
                          capture_output=True, text=True).stderr


def script_says(name):
    """By the script, which runs in this process. Says if there is a file after a refusal."""
    given = ["--input=x=f32[3,6]", "--input=lengths=i64[]"] if "packs" in name else ["--input=x=f32[6]"]
    out = io.StringIO()
    sys.path.insert(0, os.getcwd())
    script = importlib.import_module("lockstep_export")
    file = f"{name}.pt2"
    with unittest.mock.patch.object(sys, "argv", ["", f"{__file__}:{name}", *given, "--out", file]), contextlib.redirect_stdout(out):
        try:
            script.main()
        except script.Obstacle as obstacle:
            return f"{out.getvalue()}{obstacle}" + (" and a file" if os.path.exists(file) else "")
    return out.getvalue()


def ends_quietly_into_head(*words):
    with subprocess.Popen([sys.executable, "-B", "lockstep_export.py", *words, "--out", "piped.pt2"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as program:
        program.stdout.close()
        errors = program.stderr.read()
    return "BrokenPipe" not in errors and os.path.exists("piped.pt2")


def make_net():
    torch.manual_seed(0)
    return Net()


def trains_as_advised(name, refused, mended, advice):
    batch, sample = torch.export.Dim("batch"), (torch.zeros(2, 1, 6, 6),)
    files = [f"{name}.pt2", f"{name}-mended.pt2"]
    for net, file in zip((refused, mended), files):
        torch.export.save(torch.export.export(net, sample, dynamic_shapes=({0: batch},)), file)
    ends = [ended("train", "--data", "data", "--model", file, "--run", file + ".run", "--max-steps", "2", "--batch", "60")
            for file in files]
    shown = [ended("models", file)[1] for file in files]
    return (ends[0][0] == 78 and ends[1][0] == 0 and "E250" in ends[0][2]
            and all(advice in text for text in (ends[0][2], shown[0])) and "not f32" not in shown[1])


def safetensors_of(path):
    data = pathlib.Path(path).read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    types = {"F32": torch.float32, "F64": torch.float64, "I64": torch.int64, "BOOL": torch.bool}
    found = {}
    for name, about in json.loads(data[8:end]).items():
        if name == "__metadata__":
            continue
        begin, stop = about["data_offsets"]
        assert (end + begin) % min(8, max(1, (stop - begin) or 1)) == 0 or about["dtype"] != "F64", name
        values = torch.frombuffer(bytearray(data[end + begin : end + stop]), dtype=types[about["dtype"]])
        found[name] = values.reshape(about["shape"])
    return found


def make_data():
    numbers = numpy.random.default_rng(1)
    labels = numbers.integers(0, 3, SAMPLES).astype("u1")
    features = (numbers.integers(-2, 3, (SAMPLES, 1, 6, 6)) + labels[:, None, None, None]).astype("i4")
    numpy.save("features.npy", features)
    numpy.save("labels.npy", labels)
    lockstep("data", "pack", "--npy", "features=features.npy", "--npy", "labels=labels.npy", "--classes", "4",
             "--keep-order", "--out", "data")
    return torch.from_numpy(features), torch.from_numpy(labels).long()


def normalised(features, exported):
    """By what the export says of them."""
    field = json.loads(pathlib.Path(exported + ".json").read_text())["fields"][0]
    return ((features / field["divided_by"] - torch.tensor(field["mean"])) / torch.tensor(field["std"])).float()


def check(what, is_right):
    print(f"round trip: {what}: {'equal' if is_right else 'DIFFER'}", flush=True)
    return is_right


def main():
    sys.argv[1] = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        export(f"{__file__}:make_net", "net.pt2", "x=f32[1,6,6]")
        export(f"{__file__}:Uncopied", "uncopied.pt2", "x=f32[1,6,6]", "scale=f32[1]")
        shown = lockstep("models", "uncopied.pt2")
        features, labels = make_data()
        lockstep("train", "--np", "2", "--data", "data", "--model", "net.pt2", "--run", "run", "--max-steps", "20",
                 "--batch", "60", "--lr", "0.01")
        lockstep("export", "run", "--out", "a.safetensors")
        lockstep("export", "run", "--out", "a.pt2", "--format", "pt2")
        lockstep("predict", "run", "--data", "data", "--out", "a.npy")
        tested = lockstep("eval", "run", "--data", "data")
        weights = safetensors_of("a.safetensors")
        state = torch.export.load("a.pt2").state_dict
        net, initial = make_net(), make_net().state_dict()
        net.load_state_dict(weights, strict=True)
        net.eval()
        with torch.no_grad():
            answers = net(normalised(features, "a.safetensors"))
        theirs = torch.from_numpy(numpy.load("a.npy"))
        right = int(answers.argmax(1).eq(labels).sum())
        said = re.search(r"\((\d+) of \d+\)", tested)
        results = [
            check("safetensors and pt2", weights.keys() == state.keys() == initial.keys()
                  and all(torch.equal(weights[name], state[name]) for name in state)),
            check("what does not learn", all(torch.equal(weights[name], initial[name])
                                             for name in ("frozen", "mask", "places", "wide"))),
            check("what learns is other now", not torch.equal(weights["fc.weight"], initial["fc.weight"])
                  and torch.equal(weights["fc.weight"], weights["tied.weight"])
                  and int(weights["norm.num_batches_tracked"]) > 0),
            check("predictions", torch.allclose(answers, theirs, rtol=1e-4, atol=1e-5)
                  and torch.equal(answers.argmax(1), theirs.argmax(1))),
            check(f"accuracy, {right} of {SAMPLES}", said is not None and int(said[1]) == right),
        ]
        results.append(check("a model that cannot be copied", "parameters  632 learn" in shown and "scale: f32" in shown))
        results.append(check("the advice for PyTorch's own code", "give it a number; or keep it: torch.jit.script(net)"
                             in refusal(f"{__file__}:Refused", "--input=x=f32[2,6,6]")
                             and "give torch.cdist compute_mode=" in refusal(f"{__file__}:Refused", "--input=x=f32[1,6,6]")))
        results.append(check("a file that PyTorch does not read", "not read what it wrote: AttributeError: no such operator\n  fix: "
                             in refusal(f"{__file__}:unread", "--input=input=f32[6]") and not pathlib.Path("refused.pt2").exists()))
        results.append(check("the advice for models of transformers", all(
            fix in refusal(f"{__file__}:OfTransformers", f"--input=x=f32[{rows},6]")
            for rows, fix in ((1, "returns a transformers.cache_utils.Kept, which is no tensor\n  fix: set net.config.use_cache"
                               " = False"), (2, "fix: call net.set_experts_implementation('batched_mm')")))))
        for name, (_, pattern) in SAID.items():
            text = script_says(name)
            is_right = bool(re.search(pattern, text)) and " and a file" not in text
            results.append(check(name if is_right else f"{name}: {text}", is_right))
        shutil.copy("it_counts.pt2", "it_has_hooks.pt2")
        results.append(check("a refusal keeps an older file", script_says("it_has_hooks").endswith(" and a file")))
        results.append(check("a reader that goes", ends_quietly_into_head(f"{__file__}:make_net", "--input=x=f32[1,6,6]")))
        for dtype in (torch.float64, torch.float16, torch.bfloat16):
            name = str(dtype)[6:]
            results.append(check(f"a model of {name}, mended", trains_as_advised(
                name, Other(dtype), Other(dtype).float(), "call net.float() before the model is exported")))
        results.append(check("a model of complex64, mended", trains_as_advised(
            "complex64", Other(torch.complex64), Other(torch.complex64, in_pairs=True),
            "make the parameter of pairs, w = torch.view_as_real(w), and use torch.view_as_complex(w)")))
        os.chdir("/")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
