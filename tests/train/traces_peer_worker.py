# SPDX-License-Identifier: Apache-2.0
"""What traces_peer runs in the peers' environment: traces_peer_worker.py RUN FIRST LAST."""

import collections
import logging
import math
import pathlib
import re
import sys

from google.protobuf.unknown_fields import UnknownFieldSet
from hta.trace_analysis import TraceAnalysis
from perfetto.protos.perfetto.trace import perfetto_trace_pb2
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


def unknown_fields(message, path):
    found = [f"{path}.{field.field_number}" for field in UnknownFieldSet(message)]
    for descriptor, value in message.ListFields():
        if descriptor.message_type is None:
            continue
        values = value if isinstance(value, collections.abc.Sequence) or hasattr(value, "add") else [value]
        for part in values:
            found += unknown_fields(part, f"{path}.{descriptor.name}")
    return found


def check_perfetto(run, first, last):
    trace = perfetto_trace_pb2.Trace()
    trace.ParseFromString((run / "trace-i1.pftrace").read_bytes())
    expect(not unknown_fields(trace, "trace"), f"Perfetto does not know {unknown_fields(trace, 'trace')[:5]}")
    processes, parents, open_slices, names = {}, {}, collections.defaultdict(list), {}
    flows, steps = collections.defaultdict(collections.Counter), collections.Counter()
    kinds = perfetto_trace_pb2.TrackEvent.Type
    for packet in trace.packet:
        sequence = packet.trusted_packet_sequence_id
        if packet.sequence_flags & perfetto_trace_pb2.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED:
            names = {key: name for key, name in names.items() if key[0] != sequence}
        for name in packet.interned_data.event_names:
            names[sequence, name.iid] = name.name
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            parents[track.uuid] = track.parent_uuid
            if track.HasField("process"):
                processes[track.uuid] = track.process.process_name
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        expect(parents[event.track_uuid] in processes, "a track has no process")
        stack = open_slices[event.track_uuid]
        if event.type == kinds.TYPE_SLICE_BEGIN:
            expect(not stack or stack[-1] <= packet.timestamp, "slices do not nest")
            stack.append(packet.timestamp)
            name = names[sequence, event.name_iid]
            steps[name] += name.startswith("ProfilerStep#")
            flows[parents[event.track_uuid]].update(event.flow_ids)
        else:
            expect(event.type == kinds.TYPE_SLICE_END and stack, "an end has no begin")
            expect(stack.pop() <= packet.timestamp, "a slice ends before it begins")
    expect(not any(open_slices.values()), "a slice has no end")
    found = sorted(name.split(" on ")[0] for name in processes.values())
    expect(found == ["rank 0", "rank 1"], f"processes are {processes}")
    expect(+steps == {f"ProfilerStep#{step}": 2 for step in range(first, last + 1)}, f"steps are {+steps}")
    ranks = list(flows.values())
    expect(len(ranks) == 2 and ranks[0] == ranks[1] and ranks[0], f"flows are {flows}")


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
    check_perfetto(run, first, last)
    check_prometheus(run)
    print("TensorBoard, HTA, Perfetto's schema and Prometheus' parser read it")


if __name__ == "__main__":
    main()
