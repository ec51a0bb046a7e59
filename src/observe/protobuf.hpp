// SPDX-License-Identifier: Apache-2.0
// Protocol buffers, as much as is needed to write them:
// https://protobuf.dev/programming-guides/encoding/
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::protobuf {

enum class Wire : std::uint64_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

template <class T>
void put_little_endian(std::string& out, T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i)
        out += static_cast<char>(static_cast<unsigned char>(value >> (8 * i)));
}

inline void put_varint(std::string& out, std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
    out += static_cast<char>(value);
}

inline void put_key(std::string& out, std::uint64_t field, Wire wire) {
    put_varint(out, field << 3 | static_cast<std::uint64_t>(wire));
}

inline void put_integer(std::string& out, std::uint64_t field, std::int64_t value) {
    put_key(out, field, Wire::varint);
    put_varint(out, static_cast<std::uint64_t>(value));
}

inline void put_fixed64(std::string& out, std::uint64_t field, std::uint64_t value) {
    put_key(out, field, Wire::fixed64);
    put_little_endian(out, value);
}

inline void put_double(std::string& out, std::uint64_t field, double value) {
    put_fixed64(out, field, std::bit_cast<std::uint64_t>(value));
}

inline void put_float(std::string& out, std::uint64_t field, float value) {
    put_key(out, field, Wire::fixed32);
    put_little_endian(out, std::bit_cast<std::uint32_t>(value));
}

/// Text, or a message.
inline void put_bytes(std::string& out, std::uint64_t field, std::string_view value) {
    put_key(out, field, Wire::bytes);
    put_varint(out, value.size());
    out += value;
}

/// A packed repeated field.
inline void put_doubles(std::string& out, std::uint64_t field, std::span<const double> values) {
    put_key(out, field, Wire::bytes);
    put_varint(out, values.size() * sizeof(double));
    for (const double value : values) put_little_endian(out, std::bit_cast<std::uint64_t>(value));
}

}  // namespace lockstep::protobuf
