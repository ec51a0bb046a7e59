# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/your-model.md, as they stand there: your_model_page.py LOCKSTEP.

Data are small, and so is the network that stands in for torchvision's, whose weights would be downloaded.
"""

import pathlib
import sys

import numpy

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import page

# Parameters have the names that the page freezes.
TORCHVISION = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 7, stride=4, padding=3, bias=False), nn.BatchNorm2d(8)
        self.layer1, self.layer2 = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.fc = nn.Linear(16, 1000)

    def forward(self, x):
        return self.fc(self.layer2(self.layer1(self.bn1(self.conv1(x)).relu()).relu()).relu().mean((2, 3)))

class models:
    resnet18 = staticmethod(lambda weights: Net())
"""
PROOFS = {"lockstep verify": "equal: the same bits", "lockstep models": "parameters", "lockstep predict": "forecast.npy",
          "lockstep profile": "layer", "--task program": "dice 0.", "--freeze": "frozen"}


def make_data(run):
    numbers = numpy.random.default_rng(1)
    run("lockstep data synth --size 64 --classes 5 --samples 240 --out flowers")
    for part, samples in (("train", 240), ("test", 60)):
        numpy.save("i.npy", numbers.integers(0, 256, (samples, 1, 28, 28)).astype("u1"))
        numpy.save("l.npy", numbers.integers(0, 10, samples).astype("u1"))
        run(f"lockstep data pack --npy images=i.npy --npy labels=l.npy --classes 10 --out fashion/{part}")
        run(f"lockstep data synth --kind segmentation --classes 2 --size 64 --samples {samples} --out cells/{part}")
    numpy.save("features.npy", numbers.standard_normal((240, 24, 8)).astype("f4"))
    numpy.save("targets.npy", numbers.standard_normal((240, 2)).astype("f4"))
    pathlib.Path("torchvision.py").write_text(TORCHVISION)


commands, _ = page.Page("your-model.md", sys.argv[1], PROOFS).follow(make_data)
print(f"your_model: {commands} commands of the page; a small network stood in for torchvision's")
sys.exit(0 if commands >= 16 else 1)
