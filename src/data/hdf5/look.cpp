// SPDX-License-Identifier: Apache-2.0
#include "look.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

namespace lockstep {
namespace {

// Returns null if there is none; `facts` then hold the reason, if there is one that the library
// cannot open.
h5::Handle open_dataset(const h5::Handle& file,
                        const std::string& name,
                        Links links,
                        DatasetFacts& facts) {
    bool was_refused = false;
    const h5::Handle access = h5::access_to_dataset(links, &was_refused);
    // Not H5Dopen: that follows what the path names even if it is no data set.
    h5::Handle object(H5Oopen(file.id(), name.c_str(), access.id()), H5Oclose);
    if (!object) {
        const std::string reasons = h5::last_reasons();
        if (was_refused)
            facts.layout = StorageLayout::linked;
        else if (H5Lexists(file.id(), name.c_str(), access.id()) > 0 &&
                 H5Oexists_by_name(file.id(), name.c_str(), access.id()) != 0)
            facts.chunks.fault = reasons;  // a soft link to nothing is no data set
        return {};
    }
    if (H5Iget_type(object.id()) != H5I_DATASET) return {};
    return object;
}

// "a compound of id, mass": the first names.
std::string compound_text(hid_t type) {
    constexpr int most = 8;
    const int count = H5Tget_nmembers(type);
    std::string names;
    for (int i = 0; i < std::min(count, most); ++i) {
        char* const name = H5Tget_member_name(type, static_cast<unsigned>(i));
        names += fmt::format("{}{}", i == 0 ? "" : ", ", name ? name : "?");
        H5free_memory(name);
    }
    return fmt::format("a compound of {}{}", names, count > most ? ", ..." : "");
}

// Returns true for numbers of any width, in an array or a compound.
bool has_numbers(hid_t type) {
    const H5T_class_t kind = H5Tget_class(type);
    if (kind == H5T_INTEGER || kind == H5T_FLOAT || kind == H5T_ENUM) return true;
    if (kind == H5T_ARRAY) return has_numbers(h5::Handle(H5Tget_super(type), H5Tclose).id());
    for (int i = 0; kind == H5T_COMPOUND && i < H5Tget_nmembers(type); ++i)
        if (has_numbers(
                h5::Handle(H5Tget_member_type(type, static_cast<unsigned>(i)), H5Tclose).id()))
            return true;
    return false;
}

bool has_bytes(hid_t type) {
    if (H5Tget_class(type) != H5T_VLEN) return false;
    const h5::Handle element(H5Tget_super(type), H5Tclose);
    return H5Tget_class(element.id()) == H5T_INTEGER && H5Tget_size(element.id()) == 1;
}

std::string type_text(hid_t type) {
    const H5T_class_t kind = H5Tget_class(type);
    if (kind == H5T_INTEGER || kind == H5T_FLOAT) {
        const char* order = H5Tget_order(type) == H5T_ORDER_BE ? "big-endian " : "";
        const char* form = kind == H5T_FLOAT ? "f" : H5Tget_sign(type) == H5T_SGN_NONE ? "u" : "i";
        return fmt::format("{}{}{}", order, form, 8 * H5Tget_size(type));
    }
    if (kind == H5T_STRING) return "text";
    if (kind == H5T_COMPOUND) return compound_text(type);
    if (kind == H5T_ENUM)
        return "an enumeration of " + type_text(h5::Handle(H5Tget_super(type), H5Tclose).id());
    if (kind == H5T_VLEN) return "of variable length";
    return kind == H5T_ARRAY ? "an array" : "of an unusual type";
}

std::optional<ElementType> element_of(hid_t type) {
    using enum ElementType;
    for (const ElementType element : {u8, i32, i64, f32, f64})
        if (H5Tequal(type, h5::type_of(element)) > 0) return element;
    if (H5Tequal(type, H5T_STD_U8BE) > 0) return u8;  // a byte has no order
    // PyTables' bool.
    if (H5Tget_class(type) == H5T_BITFIELD && H5Tget_size(type) == 1) return u8;
    return {};
}

// A float of 16 bits with so many of exponent: 5 is IEEE 754's, 8 is bfloat16.
h5::Handle short_float(std::size_t exponent_bits, H5T_order_t order) {
    h5::Handle type(H5Tcopy(H5T_IEEE_F32LE), H5Tclose);
    const std::size_t fraction_bits = 15 - exponent_bits;
    H5Tset_fields(type.id(), 15, fraction_bits, exponent_bits, 0, fraction_bits);
    H5Tset_ebias(type.id(), (std::size_t{1} << (exponent_bits - 1)) - 1);
    H5Tset_precision(type.id(), 16);
    H5Tset_size(type.id(), 2);
    H5Tset_order(type.id(), order);
    return type;
}

bool is_short_float(hid_t type, std::size_t exponent_bits) {
    return H5Tequal(type, short_float(exponent_bits, H5T_ORDER_LE).id()) > 0 ||
           H5Tequal(type, short_float(exponent_bits, H5T_ORDER_BE).id()) > 0;
}

bool is_usual(hid_t type) {
    for (const hid_t usual :
         {H5T_STD_I8LE,   H5T_STD_U8LE,   H5T_STD_I16LE,  H5T_STD_I16BE, H5T_STD_U16LE,
          H5T_STD_U16BE,  H5T_STD_I32LE,  H5T_STD_I32BE,  H5T_STD_U32LE, H5T_STD_U32BE,
          H5T_STD_I64LE,  H5T_STD_I64BE,  H5T_STD_U64LE,  H5T_STD_U64BE, H5T_IEEE_F32LE,
          H5T_IEEE_F32BE, H5T_IEEE_F64LE, H5T_IEEE_F64BE, H5T_STD_I8BE,  H5T_STD_U8BE})
        if (H5Tequal(type, usual) > 0) return true;
    return is_short_float(type, 5) || is_short_float(type, 8);
}

std::optional<StoredNumber> number_of(hid_t type) {
    const H5T_class_t kind = H5Tget_class(type);
    if (kind != H5T_INTEGER && kind != H5T_FLOAT) return {};
    return StoredNumber{.bytes = H5Tget_size(type),
                        .is_whole = kind == H5T_INTEGER,
                        .has_sign = kind == H5T_FLOAT || H5Tget_sign(type) == H5T_SGN_2,
                        .is_big_endian = H5Tget_order(type) == H5T_ORDER_BE,
                        .is_brain = is_short_float(type, 8),
                        .is_usual = is_usual(type)};
}

// Names and values, as far as i64 holds these.
std::vector<EnumMember> members_of(hid_t type) {
    const int count = std::max(H5Tget_nmembers(type), 0);
    std::vector<EnumMember> members;
    for (unsigned i = 0; i < static_cast<unsigned>(count); ++i) {
        std::array<std::byte, 64> value{};  // converted in place, whatever its width
        if (H5Tget_size(type) > value.size() || H5Tget_member_value(type, i, value.data()) < 0)
            continue;
        const h5::Handle stored(H5Tget_super(type), H5Tclose);
        if (H5Tconvert(stored.id(), H5T_NATIVE_INT64, 1, value.data(), nullptr, H5P_DEFAULT) < 0)
            continue;
        char* const name = H5Tget_member_name(type, i);
        if (name == nullptr) continue;
        members.push_back({name, 0});
        std::memcpy(&members.back().value, value.data(), sizeof(std::int64_t));
        H5free_memory(name);
    }
    return members;
}

// Fills in the type of its elements; an enumeration's are those that it names.
void describe_type(const h5::Handle& type, DatasetFacts& facts) {
    const H5T_class_t kind = H5Tget_class(type.id());
    facts.is_text = kind == H5T_STRING;
    if (kind != H5T_ENUM) {
        facts.type = element_of(type.id());
        facts.number = number_of(type.id());
        facts.type_text =
            facts.type ? std::string(element_name(*facts.type)) : type_text(type.id());
        return;
    }
    const h5::Handle stored(H5Tget_super(type.id()), H5Tclose);
    facts.members = members_of(type.id());
    facts.type = element_of(stored.id());
    facts.number = number_of(stored.id());
    facts.type_text = type_text(type.id());
    // NumPy's bool is an enumeration of i8.
    const auto is_small = [](const EnumMember& each) {
        return each.value >= 0 && each.value < 128;
    };
    if (H5Tget_size(type.id()) == 1 && std::ranges::all_of(facts.members, is_small))
        facts.type = ElementType::u8;
}

std::vector<FilterFacts> filters_of(const h5::Handle& properties) {
    std::vector<FilterFacts> filters;
    const int count = std::max(H5Pget_nfilters(properties.id()), 0);
    for (int i = 0; i < count; ++i) {
        std::array<unsigned, 64> values{};
        std::size_t given = values.size();
        unsigned flags = 0, config = 0;
        const H5Z_filter_t kind = H5Pget_filter2(properties.id(),
                                                 static_cast<unsigned>(i),
                                                 &flags,
                                                 &given,
                                                 values.data(),
                                                 0,
                                                 nullptr,
                                                 &config);
        given = std::min(given, values.size());
        filters.push_back({static_cast<std::uint64_t>(std::max(kind, 0)),
                           {values.begin(), values.begin() + static_cast<std::ptrdiff_t>(given)}});
    }
    return filters;
}

StorageLayout layout_of(const h5::Handle& properties) {
    const H5D_layout_t layout = H5Pget_layout(properties.id());
    if (layout == H5D_CHUNKED) return StorageLayout::chunked;
    if (layout == H5D_VIRTUAL || H5Pget_external_count(properties.id()) > 0)
        return StorageLayout::elsewhere;
    return layout == H5D_CONTIGUOUS ? StorageLayout::contiguous : StorageLayout::other;
}

void look_at_chunks(const h5::Handle& dataset, const h5::Handle& properties, DatasetFacts& facts) {
    std::vector<hsize_t> chunk(std::max<std::size_t>(facts.size.size(), 1));
    const int rank = H5Pget_chunk(properties.id(), static_cast<int>(chunk.size()), chunk.data());
    if (rank == static_cast<int>(facts.size.size())) facts.chunk.assign(chunk.begin(), chunk.end());
    unsigned options = 0;
    H5Pget_chunk_opts(properties.id(), &options);
    facts.leaves_partial_chunks = (options & H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS) != 0;
    facts.filters = filters_of(properties);
    // Texts are read by the library: those of variable length are no chunk's bytes.
    if (facts.has_sound_chunks() && !facts.is_text) facts.chunks = h5::find_chunks(dataset, facts);
}

// What attributes of the CF conventions (2.5.1, 8.1) and `_Unsigned` of NetCDF's users' guide say
// of a data set; nothing if it has none of them. What is not as these documents have it is a fault,
// never guessed.
class CfReading {
  public:
    CfReading(const h5::Handle& dataset, const StoredNumber& number)
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
    const StoredNumber& number_;
    CfFacts facts_;
};

DatasetFacts look_at_dataset(const h5::Handle& file, const std::string& name, Links links) {
    DatasetFacts facts;
    const h5::Handle dataset = open_dataset(file, name, links, facts);
    if (!dataset) return facts;
    const h5::Handle type(H5Dget_type(dataset.id()), H5Tclose);
    const h5::Handle properties(H5Dget_create_plist(dataset.id()), H5Pclose);
    describe_type(type, facts);
    facts.has_numbers = has_numbers(type.id());
    facts.has_bytes = has_bytes(type.id());
    if (facts.number && facts.members.empty()) facts.cf = CfReading(dataset, *facts.number).run();
    const std::vector<hsize_t> size = h5::extent_of(dataset);
    facts.size.assign(size.begin(), size.end());
    facts.layout = layout_of(properties);
    if (std::string place = h5::file_name(dataset); place != h5::file_name(file))
        facts.file = std::move(place);
    if (facts.layout == StorageLayout::contiguous) {
        const haddr_t offset = H5Dget_offset(dataset.id());
        facts.offset = offset == HADDR_UNDEF ? DatasetFacts::nowhere : offset;
    }
    if (facts.layout == StorageLayout::chunked) look_at_chunks(dataset, properties, facts);
    if (facts.layout == StorageLayout::elsewhere && links == Links::followed)
        facts.parts = h5::parts_of(dataset, properties, facts);
    return facts;
}

// Of links, which may be many without being data sets.
constexpr std::size_t most_links = 4096;

herr_t note_name(hid_t, const char* name, const H5L_info_t*, void* names) {
    auto& all = *static_cast<std::vector<std::string>*>(names);
    all.push_back(std::string("/") + name);
    return all.size() < most_links ? 0 : 1;
}

// Returns true for an object that the library cannot open, because it is damaged or newer. Objects
// of unknown kind count, too: a name with the reason is better than none.
bool may_be_dataset(const h5::Handle& file, const std::string& name, const h5::Handle& access) {
    if (H5Lexists(file.id(), name.c_str(), access.id()) <= 0 ||
        H5Oexists_by_name(file.id(), name.c_str(), access.id()) == 0)
        return false;
    H5O_info_t info{};
#if H5_VERSION_GE(1, 12, 0)
    const herr_t got =
        H5Oget_info_by_name(file.id(), name.c_str(), &info, H5O_INFO_BASIC, access.id());
#else
    const herr_t got = H5Oget_info_by_name(file.id(), name.c_str(), &info, access.id());
#endif
    return got < 0 || info.type == H5O_TYPE_DATASET;
}

bool is_dataset(const h5::Handle& file, const std::string& name) {
    bool leads_away = false;
    const h5::Handle access = h5::access_to_dataset(Links::refused, &leads_away);
    const h5::Handle object(H5Oopen(file.id(), name.c_str(), access.id()), H5Oclose);
    if (object) return H5Iget_type(object.id()) == H5I_DATASET;
    return !leads_away && may_be_dataset(file, name, access);
}

}  // namespace

DatasetFacts look_at_part(const fs::path& path, const std::string& dataset) {
    return look_at_dataset(h5::open_for_probing(path), dataset, Links::refused);
}

FileFacts look_at_file(const FileRequest& request) {
    const h5::QuietErrors quiet;
    const h5::Handle file = h5::open_for_probing(request.path);
    FileFacts facts;
    facts.uuid = h5::Attribute(file, "dataset_uuid").fixed_text(4096);
    facts.shard_index = h5::Attribute(file, "shard_index").whole_number();
    facts.samples = h5::Attribute(file, "n_samples").whole_number();
    facts.first_sample = h5::Attribute(file, "first_sample").whole_number();
    for (const std::string& name : request.datasets)
        facts.datasets.push_back(look_at_dataset(file, name, request.links));
    return facts;
}

FileRequest list_datasets(const fs::path& path) {
    const h5::QuietErrors quiet;
    const h5::Handle file = h5::open_for_probing(path);
    std::vector<std::string> links;
    H5Lvisit(file.id(), H5_INDEX_NAME, H5_ITER_INC, note_name, &links);
    FileRequest found{path, {}};
    for (const std::string& name : links) {
        if (found.datasets.size() == most_listed) break;
        if (is_dataset(file, name)) found.datasets.push_back(name);
    }
    return found;
}

}  // namespace lockstep
