// SPDX-License-Identifier: Apache-2.0
#include "look.hpp"

#include <bit>
#include <string_view>

#include <fmt/format.h>

namespace lockstep {
namespace {

class Reading {
  public:
    Reading(const h5::Handle& dataset, const NumberFacts& number)
        : dataset_(dataset), number_(number) {}

    std::optional<CfFacts> run() {
        read_sign();
        facts_.packing.scale = real("scale_factor");
        facts_.packing.offset = real("add_offset");
        for (const char* name : {"_FillValue", "missing_value"})
            for (const std::uint64_t value : stored(name, 1, most_missing_values / 2))
                facts_.packing.missing.push_back(value);
        read_range();
        if (facts_.packing.is_empty() && facts_.fault.empty()) return {};
        return facts_;
    }

  private:
    // The first one is told.
    void blame(const char* name, std::string_view why) {
        if (facts_.fault.empty()) facts_.fault = fmt::format("its attribute {} {}", name, why);
    }

    void read_sign() {
        constexpr std::size_t most_text = 64;
        const h5::Attribute attribute(dataset_, "_Unsigned");
        if (!attribute.is_there()) return;
        // Of fixed length is netCDF4's, of variable length h5py's.
        const auto fixed = attribute.fixed_text(most_text);
        const std::string text = fixed ? *fixed : attribute.variable_text(most_text).value_or("");
        facts_.is_unsigned = text == "true";
        if (text != "true" && text != "false")
            blame("_Unsigned", "is neither 'true' nor 'false'");
        else if (facts_.is_unsigned && !number_.is_whole)
            blame("_Unsigned", "is about floating numbers");
    }

    std::optional<double> real(const char* name) {
        const h5::Attribute attribute(dataset_, name);
        if (!attribute.is_there()) return {};
        const bool is_number = attribute.kind() == H5T_INTEGER || attribute.kind() == H5T_FLOAT;
        std::vector<double> values;
        if (is_number && attribute.count() == 1)
            values = attribute.values<double>(H5T_NATIVE_DOUBLE);
        if (values.empty()) {
            blame(name, "is not one number");
            return {};
        }
        return values[0];
    }

    // Values as they are stored: of another kind they would be of what the numbers stand for.
    std::vector<std::uint64_t> stored(const char* name, std::size_t least, std::size_t most) {
        const h5::Attribute attribute(dataset_, name);
        if (!attribute.is_there()) return {};
        std::vector<std::uint64_t> bits;
        if (attribute.kind() != (number_.is_whole ? H5T_INTEGER : H5T_FLOAT)) {
            blame(name, "is of another kind of numbers than the data");
            return bits;
        }
        if (attribute.count() < least || attribute.count() > most) {
            blame(name, fmt::format("has {} values", attribute.count()));
            return bits;
        }
        if (!number_.is_whole) {
            for (const double value : attribute.values<double>(H5T_NATIVE_DOUBLE))
                bits.push_back(std::bit_cast<std::uint64_t>(value));
        } else if (is_without_sign() && !attribute.has_sign()) {
            bits = attribute.values<std::uint64_t>(H5T_NATIVE_UINT64);
        } else {
            for (const std::int64_t value : attribute.values<std::int64_t>(H5T_NATIVE_INT64))
                bits.push_back(without_sign(name, value));
        }
        if (bits.empty()) blame(name, "cannot be read");
        return bits;
    }

    bool is_without_sign() const { return facts_.is_unsigned || !number_.has_sign; }

    // `_Unsigned` is about its attributes, too: -1 of a byte is 255.
    std::uint64_t without_sign(const char* name, std::int64_t value) {
        const auto bits = static_cast<std::uint64_t>(value);
        if (value >= 0 || !is_without_sign()) return bits;
        if (!facts_.is_unsigned) blame(name, "is negative, and the data have no sign");
        return number_.bytes < 8 ? bits & ((std::uint64_t{1} << (8 * number_.bytes)) - 1) : bits;
    }

    void read_range() {
        const std::vector<std::uint64_t> range = stored("valid_range", 2, 2);
        const std::vector<std::uint64_t> least = stored("valid_min", 1, 1);
        const std::vector<std::uint64_t> most = stored("valid_max", 1, 1);
        if (!range.empty() && !(least.empty() && most.empty()))
            blame("valid_range", "is there beside valid_min or valid_max");
        CfPacking& packing = facts_.packing;
        if (!range.empty()) packing.least = range[0];
        if (range.size() > 1) packing.most = range[1];
        if (!least.empty()) packing.least = least[0];
        if (!most.empty()) packing.most = most[0];
    }

    const h5::Handle& dataset_;
    const NumberFacts& number_;
    CfFacts facts_;
};

}  // namespace

std::optional<CfFacts> cf_attributes_of(const h5::Handle& dataset, const NumberFacts& number) {
    return Reading(dataset, number).run();
}

}  // namespace lockstep
