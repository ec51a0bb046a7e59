// SPDX-License-Identifier: Apache-2.0
// Tested: data/foreign_matrix/foreign_matrix_test.cpp (both roads),
// data/hdf5/foreign_types_test.cpp, data/pack/hdf5_source_test.cpp.
#include "row_form.hpp"

#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/data/foreign.hpp"

#include "format/index_columns.hpp"
#include "format/labels.hpp"
#include "row_layout.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include <fmt/format.h>

namespace lockstep {
namespace {

// xarray gives every float a _FillValue of NaN, which is what is read anyhow.
bool changes_nothing(const DatasetFacts& facts) {
    const CfPacking& packing = facts.cf->packing;
    const auto is_nan = [](std::uint64_t bits) { return std::isnan(std::bit_cast<double>(bits)); };
    return !packing.scale && !packing.offset && !packing.least && !packing.most &&
           !facts.number->is_whole && std::ranges::all_of(packing.missing, is_nan);
}

// The reason why the CF attributes cannot be applied to a data set; "" if they can.
std::string unpacking_fault(const DatasetFacts& facts) {
    if (!facts.cf)
        return "it has none of scale_factor, add_offset, _FillValue, missing_value, valid_min, "
               "valid_max and valid_range";
    if (!facts.cf->fault.empty()) return printable(facts.cf->fault);
    if (!facts.number || !facts.number->is_usual)
        return "numbers of 8 to 64 bits are unpacked, and floating ones of 16, 32 and 64";
    return "";
}

Unpacking unpacking_of(const DatasetFacts& facts, const FieldMapping& field, const fs::path& file) {
    const std::string fault = unpacking_fault(facts);
    FieldMapping without = field;
    without.cf.reset();
    check(fault.empty(),
          "E235",
          fmt::format("'{}' of '{}' cannot be unpacked", field.hdf5_path, file.string()),
          fault,
          fmt::format("to read the stored numbers: --field {}", shell_word(mapping_text(without))));
    StoredNumber stored = *facts.number;
    if (facts.cf->is_unsigned) stored.has_sign = false;
    auto found = Unpacking::of(stored, facts.cf->packing, field.cf->instead);
    expect(found.has_value(), "usual numbers can be unpacked");
    return *std::move(found);
}

Widening widening_of(const DatasetFacts& facts, bool is_class) {
    const bool is_stored = is_class ? facts.type == ElementType::i64 : facts.type.has_value();
    if (is_stored || !facts.number) return Widening{};
    return is_class ? Widening::to_labels(*facts.number) : Widening::of(*facts.number);
}

// What libhdf5 makes of numbers of other forms, without loss.
ElementType library_type(const StoredNumber& number, bool is_class) {
    if (is_class) return ElementType::i64;
    if (!number.is_whole) return number.bytes <= 4 ? ElementType::f32 : ElementType::f64;
    if (number.bytes == 1 && !number.has_sign) return ElementType::u8;
    const bool fits_i32 = number.bytes < 4 || (number.bytes == 4 && number.has_sign);
    return fits_i32 ? ElementType::i32 : ElementType::i64;
}

ElementType type_of(const DatasetFacts& facts,
                    const FieldMapping& field,
                    const Widening& widening,
                    Road road,
                    bool is_class) {
    if (facts.type && !widening.is_known()) return *facts.type;
    const auto refuse = [&](const char* why) {
        return Unfit{Obstacle::elements,
                     fmt::format("it is {}; {}", printable(facts.type_text), why)};
    };
    if (facts.is_text)
        throw refuse(
            "text is read as labels only, one for each sample: call the field 'labels', or write "
            "PATH:label where it is streamed");
    const auto& number = facts.number;
    const bool is_packed = road == Road::pack;
    const bool is_label =
        is_packed ? is_label_name(field.name) : may_be_label(field) && facts.has_one_number_a_row();
    // What the library makes of u64 beyond i64, the largest i64 or a negative one, is no class.
    if (number && number->is_whole && !number->has_sign && number->bytes == 8 && !is_label)
        throw refuse("only labels of it are read, because i64 does not hold all its values");
    if (widening.is_known()) return widening.type();
    if (is_packed && number && (is_class || number->bytes <= 8))
        return library_type(*number, is_class);
    throw refuse("whole numbers of 8 to 64 bits and floating ones of 16, 32 and 64 are read");
}

// Before anything is computed from sizes that a file may have made up.
void check_sizes(const DatasetFacts& facts, ElementType type, Road road) {
    constexpr std::uint64_t most_packed_row = std::uint64_t{1} << 30;
    constexpr std::uint64_t most_bytes = std::uint64_t{1} << 60;
    const auto refuse = [](const std::string& why) { return Unfit{Obstacle::samples, why}; };
    if (facts.size.empty()) throw refuse("it has no dimensions: no row per sample");
    if (facts.size[0] == 0) throw refuse("it has no samples");
    const std::uint64_t most = road == Road::pack ? most_packed_row : most_decoded_bytes;
    std::uint64_t row_bytes = element_bytes(type);
    for (std::size_t i = 1; i < facts.size.size(); ++i) {
        if (facts.size[i] < 1 || facts.size[i] > most / row_bytes)
            throw refuse(fmt::format("its sizes are {}: a sample must have 1 byte to {}",
                                     fmt::join(facts.size, " x "),
                                     bytes_text(most)));
        row_bytes *= facts.size[i];
    }
    if (facts.size[0] > std::min(most_samples, most_bytes / row_bytes))
        throw refuse(fmt::format("it has {} samples", grouped(facts.size[0])));
}

// Libraries of tables and images write one number for each sample as [n, 1] or [n, 1, 1, 1].
bool is_label_column(const FieldMapping& field, const RowForm& form) {
    const bool is_named = field.name == "labels" || field.layout == RowLayout::label;
    return is_named && may_be_label(field) && field.name != "tokens" && is_whole(form.type) &&
           std::ranges::count(form.shape, 1) == std::ssize(form.shape);
}

std::string rows_text(const RowForm& form) {
    if (form.is_text) return "text";
    if (form.is_encoded) return "encoded images";
    return fmt::format("{} [n{}{}]",
                       element_name(form.type),
                       form.shape.empty() ? "" : ", ",
                       fmt::join(form.shape, ", "));
}

std::string_view numpy_name(ElementType type) {
    constexpr std::array<std::string_view, 5> names{"u1", "i4", "i8", "f4", "f8"};
    return names.at(static_cast<std::size_t>(type));
}

}  // namespace

RowForm form_of(const DatasetFacts& facts,
                const FieldMapping& field,
                const fs::path& file,
                Road road,
                bool is_class) {
    if (facts.layout == StorageLayout::missing)
        throw Unfit{
            Obstacle::library, fmt::format("HDF5 says: {}", printable(facts.chunks.fault)), "E205"};
    if (facts.layout == StorageLayout::linked)
        throw Unfit{Obstacle::elsewhere, "a link leads into another file", "E205"};
    RowForm form;
    form.is_text = facts.is_column_of_texts() && is_one_label(field) && !field.cf;
    form.is_encoded = road == Road::pack && facts.has_bytes && field.name == "images" &&
                      facts.size.size() <= 2 && facts.has_one_number_a_row();
    if (field.cf && !form.is_encoded) {
        form.unpacking = unpacking_of(facts, field, file);
        form.type = ElementType::f32;
    } else if (!form.is_text && !form.is_encoded) {
        form.widening = widening_of(facts, is_class);
        form.type = type_of(facts, field, form.widening, road, is_class);
    }
    check_sizes(facts, form.type, road);
    if (!form.is_text) form.shape.assign(facts.size.begin() + 1, facts.size.end());
    if (is_label_column(field, form)) form.shape.clear();
    return form;
}

void check_like(const RowForm& form,
                const RowForm& first_form,
                const AskedFiles& asked,
                std::size_t field,
                const fs::path& file,
                const fs::path& first) {
    const bool is_of_kind =
        form.is_text == first_form.is_text && form.is_encoded == first_form.is_encoded;
    const bool has_shape = is_of_kind && form.shape == first_form.shape;
    check(has_shape && form.type == first_form.type, [&] {
        const auto rewrite = [&] {
            return rewrite_command({{file}, asked.fields},
                                   field,
                                   fmt::format("x.astype(\"{}\")", numpy_name(first_form.type)));
        };
        return Error(
            "E208",
            fmt::format("'{}' of '{}' does not fit the other files",
                        asked.fields[field].hdf5_path,
                        file.string()),
            fmt::format("it is {}, in '{}' it is {}",
                        rows_text(form),
                        first.string(),
                        rows_text(first_form)),
            has_shape ? "let h5py convert it, and give the file in NAME in its place: " + rewrite()
                      : fmt::format("leave the file out: its samples have another {}",
                                    is_of_kind ? "shape" : "form"));
    });
}

Error no_label(const AskedFiles& asked, std::size_t field, const RowForm& form) {
    const FieldMapping& mapping = asked.fields[field];
    const std::string& place = mapping.hdf5_path;
    return Error(
        "E235",
        fmt::format("field '{}' is no label: samples of '{}' are {} [{}]",
                    mapping.name,
                    place,
                    element_name(form.type),
                    fmt::join(form.shape, ", ")),
        "a label is one whole number or text per sample; of 'masks' [H, W] one number per pixel, "
        "of 'tokens' [T] per place",
        form.shape.size() == 1
            ? fmt::format("if each row has one 1 and else 0: --field {0}={1}:onehot; if several "
                          "may be 1: --field {0}={1}",
                          mapping.name,
                          place)
        : form.shape.size() == 2
            ? fmt::format("if each pixel has a class: --field masks={}:label", place)
            : fmt::format("to predict these numbers, give --field targets={} of a folder NAME: {}",
                          place,
                          rewrite_command(asked, field, "x.reshape(len(x), -1)")));
}

void NamedClasses::add(const DatasetFacts& facts, const FieldMapping& field, const fs::path& file) {
    for (const auto& [name, value] : facts.members) {
        if (value < 0 || value >= max_classes) continue;  // E210 where a sample has it
        const auto [at, is_new] = names_.try_emplace(value, name);
        check(is_new || at->second == name, [&] {
            return Error(
                "E208",
                fmt::format("class {} of '{}' is '{}' in '{}'",
                            value,
                            field.hdf5_path,
                            printable(name),
                            file.string()),
                fmt::format("in '{}' it is '{}'", named_by_.string(), printable(at->second)),
                "write enumerations with the same members");
        });
        if (named_by_.empty()) named_by_ = file;
    }
}

std::vector<std::string> NamedClasses::names(std::size_t classes) const {
    if (names_.empty()) return {};
    std::vector<std::string> all;
    classes = std::max(classes, static_cast<std::size_t>(names_.rbegin()->first) + 1);
    for (std::size_t number = 0; number < classes; ++number) {
        const auto name = names_.find(static_cast<std::int64_t>(number));
        all.push_back(name == names_.end() ? fmt::format("{}", number) : name->second);
    }
    return all;
}

bool needs_unpacking(const DatasetFacts& facts, const FieldMapping& field) {
    return !field.cf && !may_be_label(field) && unpacking_fault(facts).empty() &&
           !changes_nothing(facts);
}

std::string unasked_unpacking(const DatasetFacts& facts, const FieldMapping& field) {
    if (!needs_unpacking(facts, field)) return "";
    FieldMapping with_cf = field;
    with_cf.cf.emplace();
    return fmt::format(
        "'{}' has {}, which are not followed: its numbers are taken as they are stored; for what "
        "they stand for by the CF conventions write --field {}",
        printable(field.hdf5_path),
        facts.cf->packing.text(),
        shell_word(mapping_text(with_cf)));
}

}  // namespace lockstep
