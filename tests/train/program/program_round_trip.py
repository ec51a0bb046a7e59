# SPDX-License-Identifier: Apache-2.0
"""A model from Python to Lockstep and back: program_round_trip.py LOCKSTEP.

The printed script exports a class that has all kinds of tensors. After some steps of training, both kinds of export
must give that class the weights with which Lockstep itself predicts.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

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


def make_net():
    torch.manual_seed(0)
    return Net()


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


def make_data(lockstep):
    numbers = numpy.random.default_rng(1)
    labels = numbers.integers(0, 3, SAMPLES).astype("u1")
    features = (numbers.integers(-2, 3, (SAMPLES, 1, 6, 6)) + labels[:, None, None, None]).astype("i4")
    numpy.save("features.npy", features)
    numpy.save("labels.npy", labels)
    lockstep("data", "pack", "--npy", "features=features.npy", "--npy", "labels=labels.npy", "--classes", "4",
             "--keep-order", "--out", "data")
    about = json.loads(pathlib.Path("data/manifest.json").read_text())["fields"][0]
    given = (torch.from_numpy(features) - torch.tensor(about["mean"])) / torch.tensor(about["std"])
    return given.float(), torch.from_numpy(labels).long()


def check(what, is_right):
    print(f"round trip: {what}: {'equal' if is_right else 'DIFFER'}", flush=True)
    return is_right


def main():
    program = os.path.abspath(sys.argv[1])
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def lockstep(*words):
        done = subprocess.run([program, *words], capture_output=True, text=True, env={**os.environ, **root})
        if done.returncode:
            sys.exit(f"round trip: {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        pathlib.Path("lockstep_export.py").write_text(lockstep("export-script"))
        words = [f"{__file__}:make_net", "--input", "x=f32[1,6,6]", "--out", "net.pt2"]
        subprocess.run([sys.executable, "lockstep_export.py", *words], check=True, stderr=subprocess.DEVNULL)
        features, labels = make_data(lockstep)
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
            answers = net(features)
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
        os.chdir("/")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
