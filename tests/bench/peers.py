# SPDX-License-Identifier: Apache-2.0
"""What benchmarks against PyTorch share: its environment, and the machine in their last line."""

import os
import pathlib
import platform
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(os.environ.get("LOCKSTEP_CACHE") or pathlib.Path(base) / "lockstep")


PEER = "peer-ddp-torch-2.11.0"


def has_peer_environment():
    return (cache_folder() / PEER / "complete").exists()


def peer_environment():
    """The folder of the peer's Python environment; made on first use."""
    folder = cache_folder() / PEER
    if (folder / "complete").exists():
        return folder
    print(f"making the peer's Python environment in {folder} (700 MB to download)", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    install = [folder / "bin/pip", "install", "--quiet", "--no-deps", "--no-cache-dir"]
    subprocess.run([*install, "-r", HERE / "peer_requirements.txt"], check=True)
    probe = "import torch.distributed as d; assert d.is_gloo_available()"
    subprocess.run([folder / "bin/python", "-c", probe], check=True)
    (folder / "complete").touch()
    return folder


def environment_beside_torch(name, requirements, probe, megabytes):
    """The folder of an environment that sees PyTorch's; made on first use."""
    torch = peer_environment()
    folder = cache_folder() / name
    if (folder / "complete").exists():
        return folder
    print(f"making the peers' Python environment in {folder} ({megabytes} MB to download)", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    install = [folder / "bin/pip", "install", "--quiet", "--no-deps", "--no-cache-dir"]
    subprocess.run([*install, "-r", HERE / requirements], check=True)
    theirs, ours = (next(env.glob("lib/python3*/site-packages")) for env in (torch, folder))
    (ours / "torch.pth").write_text(f"{theirs}\n")
    subprocess.run([folder / "bin/python", "-c", probe], check=True)
    (folder / "complete").touch()
    return folder


def io_environment():
    """The peers of `io`."""
    probe = "import torch, h5py, hdf5plugin, webdataset, streaming, nvidia.dali"
    return environment_beside_torch("peer-io-1", "io_requirements.txt", probe, 400)


MODELS = "peer-models-1"


def has_models_environment():
    return (cache_folder() / MODELS / "complete").exists()


def models_environment():
    """The peers of train/model/models_peer, and peer_ddp's for resnet18 and gpt."""
    probe = "import torch, torchvision; from transformers import GPT2LMHeadModel"
    return environment_beside_torch(MODELS, "models_requirements.txt", probe, 100)


TRACES = "peer-traces-2"


def has_traces_environment():
    return (cache_folder() / TRACES / "complete").exists()


def traces_environment():
    """The peers of train/traces_peer; they need no PyTorch."""
    probe = (
        "import tensorboard.backend.event_processing.event_accumulator, hta.trace_analysis, prometheus_client"
    )
    folder = cache_folder() / TRACES
    if has_traces_environment():
        return folder
    print(f"making the peers' Python environment in {folder} (60 MB to download)", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    # Every check on a bare machine does this: a pip of its own would take as long as all packages.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin/python", "--disable-pip-version-check"]
    install = ["install", "--quiet", "--no-deps", "--no-cache-dir", "--no-compile"]
    subprocess.run([*pip, *install, "-r", HERE / "traces_requirements.txt"], check=True)
    subprocess.run([folder / "bin/python", "-c", probe], check=True)
    (folder / "complete").touch()
    return folder


def machine():
    cpu = "unknown"
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.split(":")[1].strip()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30),
        "kernel": platform.release(),
        "torch": "2.11.0",
    }
