# SPDX-License-Identifier: Apache-2.0
"""What traces_peer runs in the peers' environment: traces_peer_worker.py RUN FIRST LAST."""

import collections
import logging
import math
import pathlib
import re
import sys

from hta.trace_analysis import TraceAnalysis
from prometheus_client.parser import text_string_to_metric_families
from tensorboard.backend.event_processing import event_accumulator, event_file_loader
from tensorboard.util import tensor_util


def expect(condition, what):
    if not condition:
        sys.exit(f"traces_peer: {what}")


def check_tensorboard(run):
    events = event_accumulator.EventAccumulator(str(run), size_guidance={"tensors": 0})
    events.Reload()
    tags = events.Tags()
    expect([e.step for e in events.Scalars("train/loss")] == [5, 10, 15, 20], f"scalars are {tags['scalars']}")
    text = tensor_util.make_ndarray(events.Tensors("run/settings")[0].tensor_proto).item().decode()
    expect(re.search(r"^\| batch \| 32 \|$", text, re.MULTILINE), f"text is {text}")
    plugin = events.SummaryMetadata("run/settings").plugin_data.plugin_name
    expect(plugin == "text", f"the text is of plugin {plugin}")
    found = histograms(run)
    steps = found["time/step_ms"]
    expect([step for step, _ in steps] == [5, 10, 15, 20], f"histograms of steps are {steps}")
    expect(all(count == 5 for _, count in steps), f"steps in histograms are {steps}")
    weights = [tag for tag in found if tag.startswith("weights/")]
    expect(len(weights) >= 4, f"tags are {tags}")
    for tag in weights:
        expect([step for step, _ in found[tag]] == [10, 20], f"{tag} is {found[tag]}")


def histograms(run):
    """{tag: [(step, values counted)]} as the histograms plugin gets them: rows of left, right, count."""
    found = collections.defaultdict(list)
    for path in run.glob("events.out.tfevents.*"):
        for event in event_file_loader.EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                if value.metadata.plugin_data.plugin_name != "histograms":
                    continue
                buckets = tensor_util.make_ndarray(value.tensor)
                expect(buckets.ndim == 2 and buckets.shape[1] == 3, f"buckets of {value.tag} are {buckets.shape}")
                found[value.tag].append((event.step, int(buckets[:, 2].sum())))
    return found


def check_hta(run, first, last):
    logging.disable(logging.WARNING)
    analysis = TraceAnalysis(trace_dir=str(run / "logs/i1"), include_last_profiler_step=True)
    names = analysis.t.symbol_table.get_sym_table()
    expect(sorted(analysis.t.get_all_traces()) == [0, 1], "HTA does not see both ranks")
    for rank in (0, 1):
        events = analysis.t.get_trace(rank)
        by_name = events.assign(name=[names[i] for i in events["name"]]).groupby("name")
        steps = {f"ProfilerStep#{step}" for step in range(first, last + 1)}
        seen = set(by_name.groups)
        expect(steps <= seen, f"HTA sees {seen} of rank {rank}")
        expect({"forward", "backward", "update", "reduce 0", "publish"} <= seen, f"HTA sees {seen} of rank {rank}")
        expect(set(events["iteration"]) >= set(range(first, last + 1)), f"HTA's iterations: {events['iteration']}")
        whole = sum(by_name.get_group(step)["dur"].sum() for step in steps)
        phases = sum(by_name.get_group(name)["dur"].sum() for name in seen - steps if not re.match("reduce|publish", name))
        expect(abs(whole - phases) <= 1 * len(events), f"HTA's phases are {phases} us of {whole} us")


def check_prometheus(run):
    families = {family.name: family for family in text_string_to_metric_families((run / "run.prom").read_text())}
    expect(families["lockstep_step"].samples[0].value == 20, f"families are {families}")
    expect(math.isfinite(families["lockstep_loss"].samples[0].value), f"families are {families}")
    ranks = {sample.labels["rank"] for sample in families["lockstep_step_phase_seconds"].samples}
    expect(ranks == {"0", "1"}, f"ranks are {ranks}")
    for family in families.values():
        expect(family.type == "gauge" and family.documentation, f"{family} has no type or help")


def main():
    run, first, last = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    check_tensorboard(run)
    check_hta(run, first, last)
    check_prometheus(run)
    print("TensorBoard, HTA and Prometheus' parser read it")


if __name__ == "__main__":
    main()
