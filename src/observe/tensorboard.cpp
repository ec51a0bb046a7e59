// SPDX-License-Identifier: Apache-2.0
#include "lockstep/observe/tensorboard.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/host_name.hpp"

#include "protobuf.hpp"

#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {
namespace {

using protobuf::put_bytes;
using protobuf::put_double;
using protobuf::put_doubles;
using protobuf::put_float;
using protobuf::put_integer;
using protobuf::put_little_endian;

constexpr std::array<std::uint32_t, 256> crc_table = [] {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t i = 0; i < 256; ++i) {
        auto value = i;
        for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ (value & 1 ? 0x82F63B78u : 0u);
        table[i] = value;
    }
    return table;
}();

/// TFRecord stores checksums rotated and shifted, so that a checksum of a checksum is not trivial.
std::uint32_t masked_crc(std::string_view bytes) {
    return std::rotr(crc32c(bytes), 15) + 0xA282EAD8u;
}

/// Field numbers of tensorflow.Event.
namespace event_field {
constexpr std::uint64_t wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7;
}

std::string event_at(std::int64_t step) {
    std::string event;
    put_double(event, event_field::wall_time, unix_time_s());
    put_integer(event, event_field::step, step);
    return event;
}

/// Field numbers of tensorflow.Summary.Value.
namespace value_field {
constexpr std::uint64_t tag = 1, simple_value = 2, histogram = 5, tensor = 8, metadata = 9;
}

/// Summary{value: Value...}.
std::string summary_of(std::span<const Scalar> scalars) {
    std::string summary;
    for (const auto& [tag, number] : scalars) {
        std::string value;
        put_bytes(value, value_field::tag, tag);
        put_float(value, value_field::simple_value, static_cast<float>(number));
        put_bytes(summary, 1, value);
    }
    return summary;
}

/// SummaryMetadata{plugin_data: {plugin_name}, data_class: DATA_CLASS_TENSOR}.
std::string metadata_of_text() {
    std::string plugin, metadata;
    put_bytes(plugin, 1, "text");
    put_bytes(metadata, 1, plugin);
    put_integer(metadata, 4, 2);
    return metadata;
}

/// TensorProto{dtype: DT_STRING, tensor_shape: {}, string_val}: one text.
std::string tensor_of(std::string_view text) {
    std::string tensor;
    put_integer(tensor, 1, 7);
    put_bytes(tensor, 2, "");
    put_bytes(tensor, 8, text);
    return tensor;
}

/// HistogramProto{min, max, num, sum, sum_squares, bucket_limit, bucket}.
std::string proto_of(const Histogram& values) {
    std::vector<double> limits, counts;
    for (const Histogram::Bucket& bucket : values.buckets()) {
        limits.push_back(bucket.limit);
        counts.push_back(bucket.count);
    }
    std::string proto;
    put_double(proto, 1, values.min());
    put_double(proto, 2, values.max());
    put_double(proto, 3, static_cast<double>(values.count()));
    put_double(proto, 4, values.sum());
    put_double(proto, 5, values.sum_squares());
    put_doubles(proto, 6, limits);
    put_doubles(proto, 7, counts);
    return proto;
}

std::string summary_of(const std::string& value) {
    std::string summary;
    put_bytes(summary, 1, value);
    return summary;
}

/// A cell of a Markdown table.
std::string cell(std::string_view text) {
    std::string cell;
    for (const char c : text) {
        if (c == '|' || c == '\\') cell += '\\';
        cell += c == '\n' || c == '\r' ? ' ' : c;
    }
    return cell;
}

fs::path new_path(const fs::path& directory) {
    const auto seconds = static_cast<std::int64_t>(std::floor(unix_time_s()));
    return directory /
           fmt::format("events.out.tfevents.{}.{}.{}", seconds, host_name(), ::getpid());
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
    std::uint32_t crc = ~0u;
    for (const char c : bytes) {
        crc = crc_table[(crc ^ static_cast<unsigned char>(c)) & 0xFF] ^ (crc >> 8);
    }
    return ~crc;
}

std::string markdown_table(std::string_view left,
                           std::string_view right,
                           std::span<const std::pair<std::string, std::string>> rows) {
    std::string table = fmt::format("| {} | {} |\n|---|---|\n", cell(left), cell(right));
    for (const auto& [name, value] : rows)
        table += fmt::format("| {} | {} |\n", cell(name), cell(value));
    return table;
}

EventFile::EventFile(const fs::path& directory, std::int64_t resumed_step)
    : path_(new_path(directory)), file_(open_for_writing(path_, O_WRONLY | O_CREAT | O_APPEND)) {
    if (!file_) throw system_error("create", path_.string(), errno);
    auto version = event_at(0);
    put_bytes(version, event_field::file_version, "brain.Event:2");
    write_event(version);
    if (resumed_step <= 0) return;
    auto restart = event_at(resumed_step + 1);
    std::string session_log;
    put_integer(session_log, 1, 1);  // status = START: events from this step on are void
    put_bytes(restart, event_field::session_log, session_log);
    write_event(restart);
}

void EventFile::add(std::int64_t step, std::span<const Scalar> scalars) {
    write_summary(step, summary_of(scalars));
}

void EventFile::add(std::int64_t step, std::string_view tag, double value) {
    const Scalar scalar{tag, value};
    add(step, std::span(&scalar, 1));
}

void EventFile::add_text(std::int64_t step, std::string_view tag, std::string_view markdown) {
    std::string value;
    put_bytes(value, value_field::tag, tag);
    put_bytes(value, value_field::tensor, tensor_of(markdown));
    put_bytes(value, value_field::metadata, metadata_of_text());
    write_summary(step, summary_of(value));
}

void EventFile::add_histogram(std::int64_t step, std::string_view tag, const Histogram& values) {
    if (values.empty()) return;
    std::string value;
    put_bytes(value, value_field::tag, tag);
    put_bytes(value, value_field::histogram, proto_of(values));
    write_summary(step, summary_of(value));
}

void EventFile::write_summary(std::int64_t step, const std::string& summary) {
    auto event = event_at(step);
    put_bytes(event, event_field::summary, summary);
    write_event(event);
}

void EventFile::write_event(const std::string& event) {
    std::string record;
    put_little_endian(record, static_cast<std::uint64_t>(event.size()));
    put_little_endian(record, masked_crc(record));
    record += event;
    put_little_endian(record, masked_crc(event));
    write_all(file_.value(), bytes_of(record), path_);
}

}  // namespace lockstep
