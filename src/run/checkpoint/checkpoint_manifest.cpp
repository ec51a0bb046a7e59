// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/checkpoint_manifest.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/pages.hpp"
#include "lockstep/run/checkpoint.hpp"
#include "lockstep/run/tensor_files.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

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

constexpr std::string_view optimizer_prefix = "optimizer.", average_prefix = "optimizer.average.";

std::vector<std::byte> values_of(const fs::path& checkpoint,
                                 const CheckpointManifest& manifest,
                                 std::size_t tensor) {
    std::vector<std::byte> values(manifest.tensors[tensor].count() * sizeof(float));
    for (const StoredPiece& piece : manifest.pieces)
        if (piece.tensor == tensor)
            read_whole_piece(checkpoint,
                             manifest,
                             piece,
                             std::span(values).subspan(piece.start * sizeof(float),
                                                       piece.count * sizeof(float)));
    return values;
}

std::vector<std::byte> values_of(std::int64_t counter) {
    const auto bytes = std::as_bytes(std::span(&counter, 1));
    return {bytes.begin(), bytes.end()};
}

// The number of the tensor with the moving average of tensor number `i`; `i` if there is none.
std::size_t average_of(const std::vector<TensorMeta>& tensors, std::size_t i) {
    const std::string name = std::string(average_prefix) + tensors[i].name;
    const auto average = std::ranges::find(tensors, name, &TensorMeta::name);
    return average == tensors.end() ? i : static_cast<std::size_t>(average - tensors.begin());
}

constexpr std::size_t most_at_once = 1u << 20, direct_unit = 4096;

// Returns what is at `offset`, within `block`: the system reads whole units around its cache, or
// all through it.
std::span<const std::byte> read_part(const UniqueFd& fd,
                                     std::span<std::byte> block,
                                     std::uint64_t offset,
                                     std::size_t bytes,
                                     const fs::path& file) {
    const std::size_t skipped = offset % direct_unit, end = skipped + bytes;
    const std::size_t whole = (end + direct_unit - 1) / direct_unit * direct_unit;
    const ssize_t got =
        ::pread(fd.value(), block.data(), whole, static_cast<off_t>(offset - skipped));
    if (got >= static_cast<ssize_t>(end)) return block.subspan(skipped, bytes);
    ::fcntl(fd.value(), F_SETFL, 0);
    return block.first(read_at(fd.value(), block.first(bytes), offset, file));
}

// Blockwise, in the order of elements.
void add_stored(Hasher128& hasher,
                const fs::path& checkpoint,
                std::vector<const StoredPiece*> pieces,
                std::span<std::byte> block,
                FileAccess access) {
    std::ranges::sort(pieces, {}, &StoredPiece::start);
    for (const StoredPiece* piece : pieces) {
        const fs::path file = path_beneath(checkpoint, piece->file);
        const UniqueFd fd = open_for_reading(file);
        if (access == FileAccess::direct) ::fcntl(fd.value(), F_SETFL, O_DIRECT);
        const std::uint64_t bytes = piece->count * sizeof(float);
        for (std::uint64_t at = 0; at < bytes; at += most_at_once) {
            const std::size_t count = std::min<std::uint64_t>(most_at_once, bytes - at);
            const auto part = read_part(fd, block, piece->offset + at, count, file);
            check(part.size() == count, [&] { return not_covering(file.string(), piece->file); });
            hasher.add(part);
        }
    }
}

template <class Value>
void compare_as(const std::vector<std::byte>& a,
                const std::vector<std::byte>& b,
                TensorDifference& found) {
    for (std::size_t at = 0; at < a.size(); at += sizeof(Value)) {
        if (std::memcmp(&a[at], &b[at], sizeof(Value)) == 0) continue;
        Value left, right;
        std::memcpy(&left, &a[at], sizeof left);
        std::memcpy(&right, &b[at], sizeof right);
        ++found.differing;
        const double apart = std::abs(static_cast<double>(left) - static_cast<double>(right));
        found.largest = std::max(
            found.largest, std::isnan(apart) ? std::numeric_limits<double>::infinity() : apart);
    }
}

TensorDifference difference(const ExportedTensor& a, const ExportedTensor& b) {
    TensorDifference found{.name = a.name, .first = a.shape, .second = b.shape};
    if (found.first != found.second) return found;
    const std::vector<std::byte> left = a.values(), right = b.values();
    a.element == ExportedElement::i64 ? compare_as<std::int64_t>(left, right, found)
                                      : compare_as<float>(left, right, found);
    return found;
}

}  // namespace

std::uint64_t TensorMeta::count() const {
    return elements_of(shape);
}

void describe(Record& record, TensorMeta& tensor) {
    record.field("name", tensor.name);
    record.mark("dtype", "F32");
    record.field("shape", tensor.shape);
}

void describe(Record& record, StoredPiece& piece) {
    LOCKSTEP_EACH(record.count, piece.tensor, piece.start, piece.count);
    record.field("file", piece.file);
    record.count("offset", piece.offset);
    record.field("xxh3_128", piece.hash);
}

void describe(Record& record, OrderState& order) {
    record.field("kind", order.kind, order_names);
    LOCKSTEP_EACH(record.field, order.data_digest, order.seed, order.lanes, order.window_blocks);
    LOCKSTEP_EACH(record.count, order.epoch, order.consumed);
}

void describe(Record& record, BitContract& contract) {
    LOCKSTEP_EACH(record.field, contract.deciding, contract.canary, contract.processor);
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

void describe(Record& record, EvaluatedStep& one) {
    LOCKSTEP_EACH(record.field, one.step, one.value);
}

void describe(Record& record, BestEvaluation& best) {
    LOCKSTEP_EACH(record.field, best.metric, best.step, best.value, best.not_since);
    record.sparse("next", best.next);
}

void describe(Record& record, LossScale& scale) {
    LOCKSTEP_EACH(record.field, scale.factor, scale.good_steps);
}

void describe(Record& record, Retention& retention) {
    record.field("last", retention.last);
    LOCKSTEP_EACH(record.sparse, retention.every, retention.rollback);
    LOCKSTEP_EACH(record.sparse, retention.read, retention.best);
}

void describe(Record& record, CheckpointState& state) {
    LOCKSTEP_EACH(record.field, state.step, state.epoch);
    if (record.is_reading()) state.updates = state.step;  // the rule of earlier versions
    record.later("updates", state.updates);
    record.field("order", state.order);
    LOCKSTEP_EACH(record.later, state.contract, state.evaluated, state.best);
    LOCKSTEP_EACH(record.later, state.loss_scale, state.retention);
    LOCKSTEP_EACH(record.field, state.ranks, state.virtual_ranks);
    LOCKSTEP_EACH(record.field, state.parameter_hash, state.counters);
}

void describe(Record& record, CheckpointManifest& manifest) {
    record.version("format", checkpoint_format);
    LOCKSTEP_EACH(record.field, manifest.state, manifest.tensors, manifest.pieces);
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

std::string stored_parameter_hash(const fs::path& checkpoint,
                                  const CheckpointManifest& manifest,
                                  std::size_t frozen_from,
                                  FileAccess access) {
    std::vector<std::vector<const StoredPiece*>> pieces(manifest.tensors.size());
    for (const StoredPiece& piece : manifest.pieces) pieces.at(piece.tensor).push_back(&piece);
    const Pages block(most_at_once + direct_unit);
    Hasher128 hasher;
    const auto add_tensors = [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) {
            if (manifest.tensors[i].name.starts_with(optimizer_prefix)) continue;
            hasher.add(bytes_of(manifest.tensors[i].name));
            add_stored(hasher, checkpoint, pieces[i], block.bytes(), access);
        }
    };
    const std::size_t count = manifest.tensors.size(), frozen = std::min(frozen_from, count);
    add_tensors(0, frozen);
    for (const auto& [name, value] : manifest.state.counters) {
        if (name.starts_with(optimizer_prefix)) continue;
        hasher.add(bytes_of(name));
        hasher.add(std::as_bytes(std::span(&value, 1)));
    }
    add_tensors(frozen, count);
    return hasher.value().hex();
}

std::vector<ExportedTensor> exported_tensors(const fs::path& checkpoint,
                                             const CheckpointManifest& manifest,
                                             ExportedTensors wanted) {
    const std::vector<TensorMeta>& metas = manifest.tensors;
    const bool wants_average = wanted == ExportedTensors::averaged;
    const bool has_average = std::ranges::any_of(
        metas, [](const TensorMeta& meta) { return meta.name.starts_with(average_prefix); });
    check(has_average || !wants_average, [] {
        return Error("E106",
                     "--average does not go with this run",
                     "it was trained without --ema: there is no average of its weights",
                     "drop --average");
    });
    const auto is_wanted = [&](const std::string& name) {
        return !name.starts_with(optimizer_prefix) || wanted == ExportedTensors::all;
    };
    std::vector<ExportedTensor> tensors;
    for (std::size_t i = 0; i < metas.size(); ++i) {
        if (!is_wanted(metas[i].name)) continue;
        const std::size_t source = wants_average ? average_of(metas, i) : i;
        tensors.push_back({.name = metas[i].name,
                           .shape = metas[i].shape,
                           .values = [checkpoint, &manifest, source] {
                               return values_of(checkpoint, manifest, source);
                           }});
    }
    for (const auto& [name, counter] : manifest.state.counters)
        if (is_wanted(name))
            tensors.push_back({.name = name,
                               .element = ExportedElement::i64,
                               .values = [value = counter] { return values_of(value); }});
    return tensors;
}

ExportSummary export_checkpoint(const fs::path& checkpoint,
                                const fs::path& file,
                                const WeightsExport& options) {
    const CheckpointManifest manifest = read_checkpoint_manifest(checkpoint);
    return write_export(
        file, manifest, exported_tensors(checkpoint, manifest, options.tensors), options);
}

ExportSummary write_export(const fs::path& file,
                           const CheckpointManifest& manifest,
                           const std::vector<ExportedTensor>& tensors,
                           const WeightsExport& options) {
    NewFile out(file);
    std::uint64_t total = 0;
    for (const ExportedTensor& tensor : tensors) total += tensor.bytes();
    if (options.progress)
        out.tell([&](std::uint64_t bytes) { options.progress(std::min(bytes, total), total); });
    if (options.format == WeightsFormat::npz)
        write_npz(out, tensors);
    else
        write_safetensors(out, tensors);
    out.finish();
    return {.step = manifest.state.step, .tensors = tensors.size(), .bytes = out.bytes()};
}

CheckpointDifference compare_checkpoints(
    const fs::path& first,
    const fs::path& second,
    const std::function<void(std::uint64_t, std::uint64_t)>& has_read) {
    const CheckpointManifest left = read_checkpoint_manifest(first),
                             right = read_checkpoint_manifest(second);
    const auto ours = exported_tensors(first, left, ExportedTensors::all),
               theirs = exported_tensors(second, right, ExportedTensors::all);
    std::map<std::string, const ExportedTensor*> rest;
    std::uint64_t total = 0, done = 0;
    for (const ExportedTensor& tensor : theirs) rest[tensor.name] = &tensor;
    for (const ExportedTensor& tensor : ours) total += tensor.bytes();
    CheckpointDifference found{.tensors = ours.size(), .different = {}};
    for (const ExportedTensor& tensor : ours) {
        const auto other = rest.find(tensor.name);
        const bool is_alone = other == rest.end();
        TensorDifference one = is_alone
                                   ? TensorDifference{.name = tensor.name, .first = tensor.shape}
                                   : difference(tensor, *other->second);
        if (!is_alone) rest.erase(other);
        done += tensor.bytes();
        if (has_read) has_read(done, total);
        if (one.differing > 0 || one.first != one.second) found.different.push_back(std::move(one));
    }
    for (const auto& [name, tensor] : rest)
        found.different.push_back({.name = name, .second = tensor->shape});
    found.tensors += rest.size();
    return found;
}

}  // namespace lockstep
