// SPDX-License-Identifier: Apache-2.0
#include "lockstep/observe/tensorboard.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/host_name.hpp"

#include <array>
#include <bit>
#include <cerrno>
#include <cmath>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {
namespace {

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

template <class T>
void put_little_endian(std::string& out, T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i) {
        out += static_cast<char>(static_cast<unsigned char>(value >> (8 * i)));
    }
}

// Protocol buffers, as much as is needed: https://protobuf.dev/programming-guides/encoding/
enum class Wire : std::uint64_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

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

void put_bytes(std::string& out, std::uint64_t field, std::string_view value) {
    put_key(out, field, Wire::bytes);
    put_varint(out, value.size());
    out += value;
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

/// Summary{value: Value{tag = 1, simple_value = 2}}.
std::string summary_of(std::span<const Scalar> scalars) {
    std::string summary;
    for (const auto& [tag, number] : scalars) {
        std::string value;
        put_bytes(value, 1, tag);
        put_float(value, 2, static_cast<float>(number));
        put_bytes(summary, 1, value);
    }
    return summary;
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

EventFile::EventFile(const fs::path& directory, std::int64_t resumed_step)
    : path_(new_path(directory)),
      file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600)) {
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
    auto event = event_at(step);
    put_bytes(event, event_field::summary, summary_of(scalars));
    write_event(event);
}

void EventFile::add(std::int64_t step, std::string_view tag, double value) {
    const Scalar scalar{tag, value};
    add(step, std::span(&scalar, 1));
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
