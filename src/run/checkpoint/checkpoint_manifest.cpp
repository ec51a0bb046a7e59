// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/checkpoint_manifest.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr int checkpoint_format = 1;

Error not_covering(const std::string& origin, const std::string& tensor) {
    return Error("E309",
                 fmt::format("'{}' does not hold tensor '{}' exactly once", origin, tensor),
                 "its pieces leave a hole or overlap",
                 "use another checkpoint");
}

void check_coverage(const CheckpointManifest& table, const std::string& origin) {
    std::vector<std::uint64_t> reached(table.tensors.size(), 0);
    std::vector<const StoredPiece*> ordered;
    for (const StoredPiece& piece : table.pieces) ordered.push_back(&piece);
    std::ranges::sort(ordered, {}, &StoredPiece::start);
    for (const StoredPiece* piece : ordered) {
        if (piece->tensor >= reached.size() || piece->start != reached[piece->tensor])
            throw not_covering(origin, fmt::format("#{}", piece->tensor));
        reached[piece->tensor] += piece->count;
    }
    for (std::size_t i = 0; i < reached.size(); ++i)
        if (reached[i] != table.tensors[i].count())
            throw not_covering(origin, table.tensors[i].name);
}

}  // namespace

std::uint64_t TensorMeta::count() const {
    return std::accumulate(
        shape.begin(), shape.end(), std::uint64_t{1}, [](auto product, auto extent) {
            return product * static_cast<std::uint64_t>(extent);
        });
}

void describe(Record& record, TensorMeta& tensor) {
    record.field("name", tensor.name);
    record.mark("dtype", "F32");
    record.field("shape", tensor.shape);
}

void describe(Record& record, StoredPiece& piece) {
    record.count("tensor", piece.tensor);
    record.count("start", piece.start);
    record.count("count", piece.count);
    record.field("file", piece.file);
    record.count("offset", piece.offset);
    record.field("xxh3_128", piece.hash);
}

void describe(Record& record, OrderState& order) {
    record.field("kind", order.kind, order_names);
    record.field("data_digest", order.data_digest);
    record.field("seed", order.seed);
    record.field("lanes", order.lanes);
    record.field("window_blocks", order.window_blocks);
    record.count("epoch", order.epoch);
    record.count("consumed", order.consumed);
}

void describe(Record& record, BitContract& contract) {
    record.field("deciding", contract.deciding);
    record.field("canary", contract.canary);
    record.field("processor", contract.processor);
}

void describe(Record& record, EvaluationRecord& evaluated) {
    // JSON has no number that is not finite.
    std::map<std::string, std::optional<double>> finite;
    for (const auto& [name, value] : evaluated.metrics)
        finite[name] = std::isfinite(value) ? std::optional(value) : std::nullopt;
    record.field("metrics", finite);
    record.field("text", evaluated.text);
    if (!record.is_reading()) return;
    for (const auto& [name, value] : finite)
        evaluated.metrics[name] = value.value_or(std::numeric_limits<double>::quiet_NaN());
}

void describe(Record& record, BestEvaluation& best) {
    record.field("metric", best.metric);
    record.field("step", best.step);
    record.field("value", best.value);
    record.field("not_since", best.not_since);
}

void describe(Record& record, LossScale& scale) {
    record.field("factor", scale.factor);
    record.field("good_steps", scale.good_steps);
}

void describe(Record& record, CheckpointState& state) {
    record.field("step", state.step);
    record.field("epoch", state.epoch);
    if (record.is_reading()) state.updates = state.step;  // the rule of earlier versions
    record.later("updates", state.updates);
    record.field("order", state.order);
    record.later("contract", state.contract);
    record.later("evaluated", state.evaluated);
    record.later("best", state.best);
    record.later("loss_scale", state.loss_scale);
    record.field("ranks", state.ranks);
    record.field("virtual_ranks", state.virtual_ranks);
    record.field("parameter_hash", state.parameter_hash);
    record.field("counters", state.counters);
}

void describe(Record& record, CheckpointManifest& manifest) {
    record.version("format", checkpoint_format);
    record.field("state", manifest.state);
    record.field("tensors", manifest.tensors);
    record.field("pieces", manifest.pieces);
}

std::string checkpoint_manifest_text(const CheckpointManifest& manifest) {
    Json json = json_of_record(manifest);
    json["digest"] = hash128(json.dump()).hex();
    return json.dump(1) + "\n";
}

CheckpointManifest parse_checkpoint_manifest(const std::string& text, const std::string& origin) {
    Json json = parse_json(text, origin);
    std::string digest;
    Record head(json, origin);
    head.field("digest", digest);
    head.version("format", checkpoint_format);
    json.erase("digest");
    check(digest == hash128(json.dump()).hex(), [&] {
        return Error("E310",
                     fmt::format("'{}' is damaged", origin),
                     "its own digest does not match its content",
                     "use another checkpoint");
    });
    auto manifest = record_from_json<CheckpointManifest>(json, origin);
    check_coverage(manifest, origin);
    return manifest;
}

CheckpointManifest read_checkpoint_manifest(const fs::path& checkpoint) {
    const fs::path path = checkpoint / "manifest.json";
    return parse_checkpoint_manifest(read_file(path), path.string());
}

}  // namespace lockstep
