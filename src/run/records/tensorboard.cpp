// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/tensorboard.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/run/text_table.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <limits>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {
namespace {

// Protocol buffers, as much as is needed to write them:
// https://protobuf.dev/programming-guides/encoding/
enum class Wire : std::uint64_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

template <class T>
void put_little_endian(std::string& out, T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i)
        out += static_cast<char>(static_cast<unsigned char>(value >> (8 * i)));
}

void put_varint(std::string& out, std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
    out += static_cast<char>(value);
}

void put_key(std::string& out, std::uint64_t field, Wire wire) {
    put_varint(out, field << 3 | static_cast<std::uint64_t>(wire));
}

void put_integer(std::string& out, std::uint64_t field, std::int64_t value) {
    put_key(out, field, Wire::varint);
    put_varint(out, static_cast<std::uint64_t>(value));
}

void put_double(std::string& out, std::uint64_t field, double value) {
    put_key(out, field, Wire::fixed64);
    put_little_endian(out, std::bit_cast<std::uint64_t>(value));
}

void put_float(std::string& out, std::uint64_t field, float value) {
    put_key(out, field, Wire::fixed32);
    put_little_endian(out, std::bit_cast<std::uint32_t>(value));
}

/// Text, or a message.
void put_bytes(std::string& out, std::uint64_t field, std::string_view value) {
    put_key(out, field, Wire::bytes);
    put_varint(out, value.size());
    out += value;
}

/// Such a field alone.
std::string field_of(std::uint64_t field, std::string_view value) {
    std::string out;
    put_bytes(out, field, value);
    return out;
}

/// A packed repeated field.
void put_doubles(std::string& out, std::uint64_t field, std::span<const double> values) {
    put_key(out, field, Wire::bytes);
    put_varint(out, values.size() * sizeof(double));
    for (const double value : values) put_little_endian(out, std::bit_cast<std::uint64_t>(value));
}

std::vector<double> make_limits() {
    std::vector<double> positive;
    for (double limit = 1e-12; limit < 1e20; limit *= 1.1) positive.push_back(limit);
    positive.push_back(std::numeric_limits<double>::max());
    std::vector<double> all;
    for (auto limit = positive.rbegin(); limit != positive.rend(); ++limit) all.push_back(-*limit);
    all.push_back(0);
    all.insert(all.end(), positive.begin(), positive.end());
    return all;
}

const std::vector<double>& limits() {
    static const std::vector<double> all = make_limits();
    return all;
}

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
        std::string value = field_of(value_field::tag, tag);
        put_float(value, value_field::simple_value, static_cast<float>(number));
        put_bytes(summary, 1, value);
    }
    return summary;
}

/// SummaryMetadata{plugin_data: {plugin_name}, data_class: DATA_CLASS_TENSOR}.
std::string metadata_of_text() {
    std::string metadata = field_of(1, field_of(1, "text"));
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

/// A cell of a Markdown table.
std::string cell(std::string_view text) {
    std::string line = backslashed(text, "|\\");
    std::ranges::replace_if(
        line, [](char c) { return c == '\n' || c == '\r'; }, ' ');
    return line;
}

fs::path new_path(const fs::path& directory) {
    const auto seconds = static_cast<std::int64_t>(std::floor(unix_time_s()));
    return directory /
           fmt::format("events.out.tfevents.{}.{}.{}", seconds, host_name(), ::getpid());
}

}  // namespace

void Histogram::add(double value) {
    if (!std::isfinite(value)) return;
    const std::vector<double>& all = limits();
    counts_.resize(all.size());
    const auto limit = std::upper_bound(all.begin(), all.end() - 1, value);
    ++counts_[static_cast<std::size_t>(limit - all.begin())];
    min_ = count_ == 0 ? value : std::min(min_, value);
    max_ = count_ == 0 ? value : std::max(max_, value);
    ++count_;
    sum_ += value;
    sum_squares_ += value * value;
}

std::vector<Histogram::Bucket> Histogram::buckets() const {
    std::vector<Bucket> found;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
        const bool goes_on = counts_[i] == 0 && !found.empty() && found.back().count == 0;
        if (!goes_on) found.push_back({});
        found.back() = {limits()[i], static_cast<double>(counts_[i])};
    }
    return found;
}

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
    if (resumed_step < 0) return;
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
    const std::string value = field_of(value_field::tag, tag) +
                              field_of(value_field::tensor, tensor_of(markdown)) +
                              field_of(value_field::metadata, metadata_of_text());
    write_summary(step, field_of(1, value));
}

void EventFile::add_histogram(std::int64_t step, std::string_view tag, const Histogram& values) {
    if (values.empty()) return;
    const std::string value =
        field_of(value_field::tag, tag) + field_of(value_field::histogram, proto_of(values));
    write_summary(step, field_of(1, value));
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
