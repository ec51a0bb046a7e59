# SPDX-License-Identifier: Apache-2.0
"""Python environments of the peers; each is made on first use."""

import argparse
import functools
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
IDX_FILES = pathlib.Path("/usr/share/datasets/fashion-mnist")


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(os.environ.get("LOCKSTEP_CACHE") or pathlib.Path(base) / "lockstep")


PEER, MODELS, TRACES = "peer-ddp-torch-2.11.0", "peer-models-2", "peer-traces-2"


def has(name):
    return (cache_folder() / name / "complete").exists()


def environment(name, requirements, probe, megabytes, beside_torch=True, has_pip=True):
    """The folder of an environment, which sees PyTorch's or not."""
    torch = peer_environment() if beside_torch else None
    folder = cache_folder() / name
    if has(name):
        return folder
    print(f"making the peers' Python environment in {folder} ({megabytes} MB to download)", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", *([] if has_pip else ["--without-pip"]), folder], check=True)
    pip = [folder / "bin/pip"]
    if not has_pip:
        pip = [sys.executable, "-m", "pip", "--python", folder / "bin/python", "--disable-pip-version-check"]
    install = ["install", "--quiet", "--no-deps", "--no-cache-dir", *([] if has_pip else ["--no-compile"])]
    subprocess.run([*pip, *install, "-r", HERE / requirements], check=True)
    if torch:
        theirs, ours = (next(env.glob("lib/python3*/site-packages")) for env in (torch, folder))
        (ours / "torch.pth").write_text(f"{theirs}\n")
    subprocess.run([folder / "bin/python", "-c", probe], check=True)
    (folder / "complete").touch()
    return folder


# PyTorch itself.
peer_environment = functools.partial(environment, PEER, "peer_requirements.txt",
                                     "import torch.distributed as d; assert d.is_gloo_available()", 700, beside_torch=False)
# The peers of `io`.
io_environment = functools.partial(environment, "peer-io-1", "io_requirements.txt",
                                   "import torch, h5py, hdf5plugin, webdataset, streaming, nvidia.dali", 400)
# The peers of train/model/models_peer, and peer_ddp's for resnet18 and gpt.
models_environment = functools.partial(environment, MODELS, "models_requirements.txt",
                                       "import torch, timm, torchvision; from transformers import GPT2LMHeadModel", 100)
# The peers of train/traces_peer; they need no PyTorch. Every check on a bare machine makes it: a pip of its own would take
# as long as all packages.
traces_environment = functools.partial(
    environment, TRACES, "traces_requirements.txt",
    "import tensorboard.backend.event_processing.event_accumulator, hta.trace_analysis, prometheus_client", 60,
    beside_torch=False, has_pip=False)


def run_in(maker):
    """Goes on in the Python of an environment, which is made if it is missing."""
    python = maker() / "bin/python"
    if pathlib.Path(sys.prefix) != python.parents[1]:
        os.execv(python, [python, "-B", *sys.argv])


def run_worker(doc, worker, *environments):
    """Runs a worker, which takes a test program and names, in the first environment of (name, maker) that is there. With
    --install the first one is made. Ends with 77 if there is none."""
    beside = pathlib.Path(sys.argv[0]).resolve()
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, required=True, help=f"test_train_{beside.name}")
    parser.add_argument("--install", action="store_true", help="make the peers' environment where it is missing")
    parser.add_argument("models", metavar="MODEL", nargs="*", help="these only")
    options = parser.parse_args()
    made = environments[:1] if options.install else [one for one in environments if has(one[0])]
    if not made:
        print(f"{beside.name}: SKIPPED, the peers' environment is missing; {beside} --install makes it")
        sys.exit(77)
    python = made[0][1]() / "bin/python"
    sys.exit(subprocess.run([python, beside.with_name(worker), options.program, *options.models]).returncode)
