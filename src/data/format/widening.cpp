// SPDX-License-Identifier: Apache-2.0
#include "widening.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>

namespace lockstep {
namespace {

template <class From, class To>
To widened(From value) {
    if constexpr (std::is_same_v<From, Half> || std::is_same_v<From, Brain>) {
        return lockstep::widened(value);
    } else {
        if constexpr (std::is_same_v<From, std::uint64_t>)
            value = std::min<From>(value, std::numeric_limits<std::int64_t>::max());
        if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
            constexpr From limit = static_cast<From>(std::int64_t{1} << 62);
            if (!(value > -limit && value < limit) || std::trunc(value) != value)
                return Widening::no_class;
        }
        return static_cast<To>(value);
    }
}

template <class From, class To, std::endian order>
void widen_all(std::span<const std::byte> stored, std::byte* to) {
    for (std::size_t i = 0; i < stored.size() / sizeof(From); ++i) {
        const To value = widened<From, To>(taken<From>(stored.data() + i * sizeof(From), order));
        std::memcpy(to + i * sizeof value, &value, sizeof value);
    }
}

struct Kind {
    StoredNumber stored;
    ElementType type;
    void (*widen)(std::span<const std::byte>, std::byte*);
};

template <class From, class To, std::endian order>
constexpr Kind kind(ElementType type) {
    return {{sizeof(From),
             std::is_integral_v<From>,
             std::is_signed_v<From> || !std::is_integral_v<From>,
             order == std::endian::big,
             std::is_same_v<From, Brain>},
            type,
            widen_all<From, To, order>};
}

using enum ElementType;
using std::endian;
constexpr auto kinds = std::to_array<Kind>({
    kind<std::int8_t, std::int32_t, endian::little>(i32),
    kind<std::int16_t, std::int32_t, endian::little>(i32),
    kind<std::int16_t, std::int32_t, endian::big>(i32),
    kind<std::uint16_t, std::int32_t, endian::little>(i32),
    kind<std::uint16_t, std::int32_t, endian::big>(i32),
    kind<std::int32_t, std::int32_t, endian::big>(i32),
    kind<std::uint32_t, std::int64_t, endian::little>(i64),
    kind<std::uint32_t, std::int64_t, endian::big>(i64),
    kind<std::int64_t, std::int64_t, endian::big>(i64),
    kind<std::uint64_t, std::int64_t, endian::little>(i64),
    kind<std::uint64_t, std::int64_t, endian::big>(i64),
    kind<float, float, endian::big>(f32),
    kind<double, double, endian::big>(f64),
    kind<Half, float, endian::little>(f32),
    kind<Half, float, endian::big>(f32),
    kind<Brain, float, endian::little>(f32),
    kind<Brain, float, endian::big>(f32),
    // Labels only. Indexes have these numbers: more go to the end.
    kind<std::int8_t, std::int64_t, endian::little>(i64),
    kind<std::uint8_t, std::int64_t, endian::little>(i64),
    kind<std::int16_t, std::int64_t, endian::little>(i64),
    kind<std::int16_t, std::int64_t, endian::big>(i64),
    kind<std::uint16_t, std::int64_t, endian::little>(i64),
    kind<std::uint16_t, std::int64_t, endian::big>(i64),
    kind<std::int32_t, std::int64_t, endian::little>(i64),
    kind<std::int32_t, std::int64_t, endian::big>(i64),
    kind<float, std::int64_t, endian::little>(i64),
    kind<float, std::int64_t, endian::big>(i64),
    kind<double, std::int64_t, endian::little>(i64),
    kind<double, std::int64_t, endian::big>(i64),
});
constexpr std::size_t kinds_of_any_field = 17;

std::uint32_t code_of(std::span<const Kind> among,
                      StoredNumber stored,
                      std::optional<ElementType> type) {
    if (stored.bytes == 1) stored.is_big_endian = false;  // there is no such thing
    const auto found = std::ranges::find_if(among, [&](const Kind& kind) {
        return kind.stored == stored && (!type || kind.type == *type);
    });
    return found == among.end() ? 0 : static_cast<std::uint32_t>(found - among.begin()) + 1;
}

}  // namespace

Widening Widening::of(const StoredNumber& stored) {
    return Widening(code_of(std::span(kinds).first(kinds_of_any_field), stored, {}));
}

Widening Widening::to_labels(const StoredNumber& stored) {
    return Widening(code_of(std::span(kinds), stored, i64));
}

bool Widening::is_known() const {
    return code_ >= 1 && code_ <= kinds.size();
}

bool Widening::holds_all() const {
    const StoredNumber& stored = kinds.at(code_ - 1).stored;
    return !stored.is_whole || stored.has_sign || stored.bytes < 8;
}

ElementType Widening::type() const {
    return kinds.at(code_ - 1).type;
}

std::size_t Widening::stored_bytes() const {
    return kinds.at(code_ - 1).stored.bytes;
}

bool Widening::undo(std::span<const std::byte> stored, std::span<std::byte> raw) const {
    const std::size_t elements = raw.size() / element_bytes(type());
    if (raw.size() % element_bytes(type()) != 0 || stored.size() != elements * stored_bytes())
        return false;
    kinds.at(code_ - 1).widen(stored, raw.data());
    return true;
}

}  // namespace lockstep
