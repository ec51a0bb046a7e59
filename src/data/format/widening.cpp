// SPDX-License-Identifier: Apache-2.0

#include "widening.hpp"

#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/shell_word.hpp"

#include "labels.hpp"

#include <cmath>
#include <limits>
#include <type_traits>

#include <fmt/format.h>

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

template <class Stored, std::endian order>
constexpr StoredNumber stored_as{sizeof(Stored),
                                 std::is_integral_v<Stored>,
                                 std::is_signed_v<Stored> || !std::is_integral_v<Stored>,
                                 order == std::endian::big,
                                 std::is_same_v<Stored, Brain>};

template <class From, class To, std::endian order>
constexpr Kind kind(ElementType type) {
    return {stored_as<From, order>, type, widen_all<From, To, order>};
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

// Stored values are compared in the widest type of their kind, floats in their own: an attribute of
// f64 names a value of f32 by what it is rounded to.
template <class From>
using Compared = std::conditional_t<
    std::is_floating_point_v<From>,
    From,
    std::conditional_t<std::is_same_v<From, std::uint64_t>, std::uint64_t, std::int64_t>>;

template <class From>
Compared<From> compared(std::uint64_t bits) {
    if constexpr (std::is_floating_point_v<From>)
        return static_cast<From>(std::bit_cast<double>(bits));
    else
        return static_cast<Compared<From>>(bits);
}

// Which stored values are missing.
template <class From>
class Missing {
  public:
    explicit Missing(const CfPacking& packing) {
        for (const std::uint64_t bits : packing.missing) {
            values_.push_back(compared<From>(bits));
            if constexpr (std::is_floating_point_v<From>) has_nan_ |= std::isnan(values_.back());
        }
        if (packing.least) least_ = compared<From>(*packing.least);
        if (packing.most) most_ = compared<From>(*packing.most);
    }
    bool has(From stored) const {
        const auto value = static_cast<Compared<From>>(stored);
        if constexpr (std::is_floating_point_v<From>)
            if (std::isnan(value)) return has_nan_;
        return value < least_ || value > most_ ||
               std::ranges::find(values_, value) != values_.end();
    }

  private:
    using Limits = std::numeric_limits<Compared<From>>;
    static constexpr bool is_real = std::is_floating_point_v<From>;
    std::vector<Compared<From>> values_;
    Compared<From> least_ = is_real ? -Limits::infinity() : Limits::min();
    Compared<From> most_ = is_real ? Limits::infinity() : Limits::max();
    bool has_nan_ = false;
};

template <class Stored>
auto number(Stored stored) {
    if constexpr (std::is_arithmetic_v<Stored>)
        return stored;
    else
        return widened(stored);
}

template <class Stored, std::endian order>
void unpack_all(const CfPacking& packing,
                float instead,
                std::span<const std::byte> stored,
                std::byte* to) {
    using From = decltype(number(Stored{}));
    const Missing<From> missing(packing);
    for (std::size_t i = 0; i < stored.size() / sizeof(Stored); ++i) {
        const From from = number(taken<Stored>(stored.data() + i * sizeof(Stored), order));
        auto value = static_cast<double>(from);
        if (packing.scale) value *= *packing.scale;
        if (packing.offset) value += *packing.offset;
        auto result = static_cast<float>(value);
        if (std::isnan(result)) result = std::numeric_limits<float>::quiet_NaN();
        if (missing.has(from)) result = instead;
        std::memcpy(to + i * sizeof result, &result, sizeof result);
    }
}

struct Packed {
    StoredNumber stored;
    void (*unpack)(const CfPacking&, float, std::span<const std::byte>, std::byte*);
};

template <class Stored, std::endian order>
constexpr Packed packed() {
    return {stored_as<Stored, order>, unpack_all<Stored, order>};
}

// Every one in both orders.
template <class... Stored>
constexpr auto packed_of_all() {
    return std::array{packed<Stored, std::endian::little>()...,
                      packed<Stored, std::endian::big>()...};
}

constexpr auto packed_kinds = packed_of_all<std::int8_t,
                                            std::uint8_t,
                                            std::int16_t,
                                            std::uint16_t,
                                            std::int32_t,
                                            std::uint32_t,
                                            std::int64_t,
                                            std::uint64_t,
                                            float,
                                            double,
                                            Half,
                                            Brain>();

void add(std::vector<std::uint64_t>& values, const std::optional<std::uint64_t>& value) {
    values.push_back(std::uint64_t{value.has_value()});
    values.push_back(value.value_or(0));
}

std::optional<std::uint64_t> bits_of(const std::optional<double>& value) {
    return value ? std::optional(std::bit_cast<std::uint64_t>(*value)) : std::nullopt;
}

std::optional<double> real_of(const std::optional<std::uint64_t>& bits) {
    return bits ? std::optional(std::bit_cast<double>(*bits)) : std::nullopt;
}

// Of scale, offset, least, most and what stands for missing ones.
constexpr std::size_t optional_values = 10;

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

std::string CfPacking::text() const {
    std::vector<std::string_view> names;
    if (scale) names.emplace_back("scale_factor");
    if (offset) names.emplace_back("add_offset");
    if (!missing.empty()) names.emplace_back("_FillValue or missing_value");
    if (least || most) names.emplace_back("valid_range");
    return fmt::format("{}", fmt::join(names, ", "));
}

std::optional<Unpacking> Unpacking::of(const StoredNumber& stored,
                                       CfPacking packing,
                                       std::optional<double> instead) {
    const auto found = std::ranges::find(packed_kinds, stored, &Packed::stored);
    if (found == packed_kinds.end() || packing.missing.size() > most_missing_values) return {};
    return Unpacking(
        static_cast<std::uint32_t>(found - packed_kinds.begin()) + 1, std::move(packing), instead);
}

Filter Unpacking::as_filter() const {
    Filter filter{FilterKind::unpacking, code_};
    add(filter.values, bits_of(packing_.scale));
    add(filter.values, bits_of(packing_.offset));
    add(filter.values, packing_.least);
    add(filter.values, packing_.most);
    add(filter.values, bits_of(instead_));
    filter.values.insert(filter.values.end(), packing_.missing.begin(), packing_.missing.end());
    return filter;
}

std::optional<Unpacking> Unpacking::of(const Filter& filter) {
    const std::vector<std::uint64_t>& values = filter.values;
    if (filter.kind != FilterKind::unpacking || filter.element < 1 ||
        filter.element > packed_kinds.size() || values.size() < optional_values ||
        values.size() > optional_values + most_missing_values)
        return {};
    const auto value = [&](std::size_t place) {
        return values[2 * place] != 0 ? std::optional(values[2 * place + 1]) : std::nullopt;
    };
    CfPacking packing{real_of(value(0)), real_of(value(1)), {}, value(2), value(3)};
    packing.missing.assign(values.begin() + optional_values, values.end());
    return Unpacking(filter.element, std::move(packing), real_of(value(4)));
}

std::size_t Unpacking::stored_bytes() const {
    return packed_kinds.at(code_ - 1).stored.bytes;
}

bool Unpacking::undo(std::span<const std::byte> stored, std::span<std::byte> raw) const {
    if (raw.size() % sizeof(float) != 0 || stored.size() != stored_bytes_of(raw.size()))
        return false;
    const float instead = instead_ ? static_cast<float>(*instead_) : std::bit_cast<float>(no_value);
    packed_kinds.at(code_ - 1).unpack(packing_, instead, stored, raw.data());
    return true;
}

std::optional<std::uint64_t> first_missing(std::span<const std::byte> values) {
    for (std::size_t i = 0; i < values.size() / sizeof(float); ++i)
        if (element_at<std::uint32_t>(values, i) == Unpacking::no_value) return i;
    return {};
}

Error missing_value(const Field& field,
                    const fs::path& file,
                    std::uint64_t row,
                    std::uint64_t sample) {
    const std::string layout = field.layout.empty() ? "" : ":" + field.layout;
    return {
        "E236",
        fmt::format("sample {} has a missing value: row {} of '{}' in '{}'",
                    grouped(sample),
                    grouped(row),
                    printable(field.source),
                    file.string()),
        "_FillValue, missing_value or valid_range say that it is none",
        fmt::format("leave such samples out of the file, or say what is to stand in the place of "
                    "missing values, such as --field {}",
                    shell_word(fmt::format("{}={}{}:cf=0", field.name, field.source, layout)))};
}

}  // namespace lockstep
