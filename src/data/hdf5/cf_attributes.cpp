// SPDX-License-Identifier: Apache-2.0
#include "look.hpp"

#include <bit>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

namespace lockstep {
namespace {

class Attribute {
  public:
    Attribute(const h5::Handle& dataset, const char* name)
        : attribute_(H5Aopen(dataset.id(), name, H5P_DEFAULT), H5Aclose),
          type_(H5Aget_type(attribute_.id()), H5Tclose),
          space_(H5Aget_space(attribute_.id()), H5Sclose) {}

    H5T_class_t kind() const { return H5Tget_class(type_.id()); }
    bool is_number() const { return kind() == H5T_INTEGER || kind() == H5T_FLOAT; }
    bool has_sign() const { return H5Tget_sign(type_.id()) != H5T_SGN_NONE; }
    std::size_t count() const {
        const hssize_t points = H5Sget_simple_extent_npoints(space_.id());
        return points < 0 ? 0 : static_cast<std::size_t>(points);
    }

    /// Returns values as the library converts them; none if it cannot.
    template <class Value>
    std::vector<Value> values(hid_t type) const {
        std::vector<Value> read(count());
        if (H5Aread(attribute_.id(), type, read.data()) < 0) read.clear();
        return read;
    }

    /// Returns a text of fixed length (netCDF4's) or not (h5py's); "" if it is no single text.
    std::string text() const {
        if (kind() != H5T_STRING || count() != 1) return "";
        if (H5Tis_variable_str(type_.id()) > 0) {
            char* found = nullptr;
            if (H5Aread(attribute_.id(), type_.id(), &found) < 0 || found == nullptr) return "";
            std::string value(found, ::strnlen(found, most_text));
            H5free_memory(found);
            return value;
        }
        const std::size_t size = H5Tget_size(type_.id());
        std::string value(size <= most_text ? size : 0, '\0');
        if (value.empty() || H5Aread(attribute_.id(), type_.id(), value.data()) < 0) return "";
        value.resize(std::strlen(value.c_str()));
        return value;
    }

  private:
    static constexpr std::size_t most_text = 64;
    h5::Handle attribute_, type_, space_;
};

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
    bool has(const char* name) const { return H5Aexists(dataset_.id(), name) > 0; }

    // The first one is told.
    void blame(const char* name, std::string_view why) {
        if (facts_.fault.empty()) facts_.fault = fmt::format("its attribute {} {}", name, why);
    }

    void read_sign() {
        if (!has("_Unsigned")) return;
        const std::string text = Attribute(dataset_, "_Unsigned").text();
        facts_.is_unsigned = text == "true";
        if (text != "true" && text != "false")
            blame("_Unsigned", "is neither 'true' nor 'false'");
        else if (facts_.is_unsigned && !number_.is_whole)
            blame("_Unsigned", "is about floating numbers");
    }

    std::optional<double> real(const char* name) {
        if (!has(name)) return {};
        const Attribute attribute(dataset_, name);
        std::vector<double> values;
        if (attribute.is_number() && attribute.count() == 1)
            values = attribute.values<double>(H5T_NATIVE_DOUBLE);
        if (values.empty()) {
            blame(name, "is not one number");
            return {};
        }
        return values[0];
    }

    // Values as they are stored: of another kind they would be of what the numbers stand for.
    std::vector<std::uint64_t> stored(const char* name, std::size_t least, std::size_t most) {
        if (!has(name)) return {};
        const Attribute attribute(dataset_, name);
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
