# SPDX-License-Identifier: Apache-2.0
"""Images with masks, volumes and series from Python to Lockstep and back: shapes_round_trip.py LOCKSTEP.

A small network for segmentation trains on a folder of images beside one of masks, which move together. What the run
and its exports predict must be what PyTorch computes with the exported weights, within 1e-6 of the largest output.
Networks for volumes [C, D, H, W] and for series [T, F] do the same.
"""

import json
import os
import pathlib
import sys
import tempfile

import numpy
import torch
from program_round_trip import export, lockstep
from torch import nn

SAMPLES, SIDE = 48, 16
torch.manual_seed(0)  # for who imports a class from here, too


class Pixels(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 2, 1))

    def forward(self, images):
        return self.body(images)


class Volumes(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv3d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv3d(4, 3, 3))

    def forward(self, features):
        return self.body(features).mean((2, 3, 4))


class Series(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.last = nn.LSTM(3, 16, batch_first=True), nn.Linear(16, 3)

    def forward(self, features):
        return self.last(self.lstm(features)[0][:, -1])


def pnm(path, pixels):
    kind = "P6" if pixels.ndim == 3 else "P5"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(f"{kind} {SIDE} {SIDE} 255\n".encode() + pixels.tobytes())


def make_data():
    numbers = numpy.random.default_rng(1)
    images = numbers.integers(0, 200, (SAMPLES, SIDE, SIDE, 3)).astype("u1")
    masks = numpy.zeros((SAMPLES, SIDE, SIDE), "u1")
    masks[:, 4:12, 3:9] = 255
    images[masks > 0] += 55
    for i in range(SAMPLES):
        pnm(pathlib.Path(f"images/i{i:02}.ppm"), images[i])
        pnm(pathlib.Path(f"masks/i{i:02}_mask.pgm"), masks[i])
    lockstep("data", "pack", "--folder", "images", "--masks", "masks", "--mask-values", "0,255", "--keep-order", "--out",
             "cells")
    volumes = numbers.standard_normal((SAMPLES, 2, 4, 6, 5)).astype("f4")
    numpy.save("volumes.npy", volumes)
    numpy.save("labels.npy", numpy.arange(SAMPLES) % 3)
    lockstep("data", "pack", "--npy", "features=volumes.npy", "--npy", "labels=labels.npy", "--keep-order", "--out",
             "volumes")
    series = 300 * numbers.standard_normal((SAMPLES, 10, 3)).astype("f4") + 1e5
    numpy.save("series.npy", series)
    lockstep("data", "pack", "--npy", "features=series.npy", "--npy", "labels=labels.npy", "--keep-order", "--out",
             "series")
    return {"series": series.astype("f8"), "cells": images.transpose(0, 3, 1, 2) / numpy.float64(255), "volumes": volumes.astype("f8")}


def normalised(data, values):
    """As the export says, by channel, or by feature of a series."""
    about = json.loads(pathlib.Path(f"{data}.out.pt2.json").read_text())["fields"][0]
    shape = (1, 1, -1) if values.ndim == 3 else (1, -1) + (1,) * (values.ndim - 2)
    mean, deviation = (numpy.array(about[key]).reshape(shape) for key in ("mean", "std"))
    return torch.from_numpy((values - mean) / deviation).float()


def main():
    sys.argv[1] = os.path.abspath(sys.argv[1])
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        stored = make_data()
        for data, model, given in (("cells", Pixels, f"images=f32[3,{SIDE},{SIDE}]"), ("series", Series, "features=f32[10,3]"),
                                   ("volumes", Volumes, "features=f32[2,4,6,5]")):
            export(f"{__file__}:{model.__name__}", f"{data}.pt2", given)
            more = ["--transform", "flip, crop 16 pad 2, rotate 20"] if data == "cells" else []
            lockstep("train", "--np", "2", "--data", data, "--model", f"{data}.pt2", "--run", f"{data}.run", "--max-steps",
                     "12", "--batch", "16", "--lr", "0.01", *more)
            lockstep("export", f"{data}.run", "--out", f"{data}.out.pt2", "--format", "pt2")
            lockstep("predict", f"{data}.run", "--data", data, "--out", f"{data}.out.npy")
            answers = [numpy.load(f"{data}.out.npy")]
            if data == "cells":
                lockstep("predict", f"{data}.run", "images", "--out", "photos.npy")
                answers.append(numpy.load("photos.npy"))
            net = model()
            exported = torch.export.load(f"{data}.out.pt2")
            net.load_state_dict(exported.state_dict)
            with torch.no_grad():
                theirs = net.eval()(normalised(data, stored[data])).numpy()
            scale = numpy.abs(theirs).max()
            worst = max([worst, *(float(numpy.abs(ours - theirs).max() / scale) for ours in answers)])
        os.chdir("/")
    print(f"shapes: predictions of images with masks, series and volumes are within {worst:.1e} of PyTorch's")
    return 0 if worst < 1e-6 else 1


if __name__ == "__main__":
    sys.exit(main())
