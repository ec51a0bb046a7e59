// SPDX-License-Identifier: Apache-2.0
#include "field_plan.hpp"

#include "lockstep/core/numbers.hpp"
#include "lockstep/data/axes.hpp"

#include "format/labels.hpp"
#include "format/naming.hpp"
#include "opening/row_layout.hpp"

#include <algorithm>
#include <cstring>
#include <set>

#include <fmt/format.h>

namespace lockstep {
namespace {

template <class Whole>
void widen(std::span<const std::byte> stored, std::span<std::byte> out) {
    Whole value{};
    std::memcpy(&value, stored.data(), sizeof value);
    const std::int64_t wide = value;
    std::memcpy(out.data(), &wide, sizeof wide);
}

// [pixels, channels] to [channels, pixels], elements of `bytes` bytes.
RowTransform channels_first(std::size_t channels, std::size_t bytes) {
    return [=](std::span<const std::byte> stored, std::span<std::byte> out) {
        const std::size_t pixels = stored.size() / channels / bytes;
        for (std::size_t p = 0; p < pixels; ++p)
            for (std::size_t c = 0; c < channels; ++c)
                std::memcpy(out.data() + (c * pixels + p) * bytes,
                            stored.data() + (p * channels + c) * bytes,
                            bytes);
    };
}

FieldPlan plan_images(Field field, ImageLayout layout, const fs::path& origin) {
    auto& shape = field.shape;
    const bool is_flat = shape.size() == 2;
    if (is_flat) shape.insert(shape.begin(), 1);
    check(shape.size() == 3, [&] {
        return malformed_input(
            origin,
            "a file of images",
            fmt::format("a sample has {} dimensions; images have 2 or 3", shape.size()));
    });
    field.layout = "CHW";
    check(is_flat || layout != ImageLayout::unstated || !may_have_channels_last(shape), [&] {
        return Error("E106",
                     fmt::format("images of '{}' are {}, which looks like height x width x "
                                 "channels",
                                 origin.string(),
                                 fmt::join(shape, " x ")),
                     "data sets have channels first; they are converted if you say so",
                     "give --layout hwc, or --layout chw if the first number counts channels");
    });
    if (is_flat || layout != ImageLayout::hwc) return {std::move(field), {}};
    std::rotate(shape.begin(), shape.begin() + 2, shape.end());
    const auto channels = static_cast<std::size_t>(shape[0]);
    RowTransform transform = channels_first(channels, element_bytes(field.type));
    return {std::move(field), std::move(transform)};
}

FieldPlan plan_labels(Field field, const fs::path& origin) {
    const bool is_one = field.shape.empty() || (field.shape.size() == 1 && field.shape[0] == 1);
    const bool is_several = field.shape.size() == 1 && !is_one;
    const bool may_be_shares = field.type == ElementType::u8 || !is_whole(field.type);
    if (is_several && may_be_shares) return {std::move(field), {}};
    check(is_one && is_whole(field.type), [&] {
        return malformed_input(
            origin,
            "a file of labels",
            fmt::format("a sample is {} [{}]; '{}' are one whole number each, or for each class "
                        "0 or 1 in u8 or a real number (name the field otherwise, e.g. targets or "
                        "masks, if they are something else)",
                        element_name(field.type),
                        fmt::join(field.shape, ", "),
                        field.name));
    });
    RowTransform transform = widening(field.type);
    field.shape.clear();
    field.type = ElementType::i64;
    return {std::move(field), std::move(transform)};
}

}  // namespace

NamedInput parse_named_input(const std::string& option, std::string_view text) {
    const auto cut = text.find('=');
    const std::string_view name = text.substr(0, cut);
    const bool is_whole =
        cut != std::string_view::npos && is_field_name(name) && cut + 1 < text.size();
    check(is_whole, [&] {
        return Error("E103",
                     fmt::format("--{} is '{}'", option, text),
                     "it must be NAME=PLACE, with a name of letters, digits, '_' and '-'",
                     fmt::format("for example --{} images={}",
                                 option,
                                 option == "npy" ? "images.npy" : "/x/images"));
    });
    return {std::string(name), std::string(text.substr(cut + 1))};
}

RowTransform widening(ElementType from) {
    if (from == ElementType::u8) return widen<std::uint8_t>;
    if (from == ElementType::i32) return widen<std::int32_t>;
    return {};
}

FieldPlan plan_field(const std::string& name,
                     ElementType type,
                     std::vector<std::int64_t> shape,
                     ImageLayout layout,
                     const fs::path& origin) {
    Field field;
    field.name = name;
    field.type = type;
    field.shape = std::move(shape);
    if (name == "images") return plan_images(std::move(field), layout, origin);
    if (is_label_name(name)) return plan_labels(std::move(field), origin);
    if (name == "masks" && field.shape.size() == 2) field.layout = "HW";
    return {std::move(field), {}};
}

void check_counts(const std::vector<NamedInput>& inputs, const std::vector<std::uint64_t>& rows) {
    for (std::size_t i = 1; i < rows.size(); ++i)
        check(rows[i] == rows[0], [&] {
            return Error("E209",
                         fmt::format("{} {} but {} {}",
                                     grouped(rows[0]),
                                     inputs[0].field,
                                     grouped(rows[i]),
                                     inputs[i].field),
                         fmt::format("in '{}' and '{}'", inputs[0].place, inputs[i].place),
                         "give inputs of the same samples");
        });
}

void check_has_images(const std::vector<NamedInput>& inputs, ImageLayout layout) {
    const bool has_images = std::ranges::count(inputs, "images", &NamedInput::field) > 0;
    check(has_images || layout == ImageLayout::unstated, [] {
        return Error("E106",
                     "--layout is given, and no field is called 'images'",
                     "it says how images lie, and others stay as they are",
                     "drop it, or call the field of images so");
    });
}

void check_has_channels(const NamedInput& images,
                        ImageLayout layout,
                        std::uint64_t count,
                        const std::vector<std::int64_t>& shape,
                        const std::string& stack) {
    const bool may_be_flat = images.field != "images" || layout == ImageLayout::unstated;
    check(may_be_flat || shape.size() != 2, [&] {
        return misfit(row_layout(layout),
                      {.field = images.field,
                       .place = fmt::format("'{}'", images.place),
                       .count = count,
                       .shape = shape,
                       .stack = stack,
                       .otherwise = "leave --layout away"});
    });
}

void check_names(const std::string& option, const std::vector<NamedInput>& inputs) {
    std::set<std::string> names;
    for (const NamedInput& input : inputs)
        check(names.insert(input.field).second, [&] {
            return Error("E103",
                         fmt::format("--{} gives the field '{}' twice", option, input.field),
                         "",
                         "drop one of them");
        });
}

}  // namespace lockstep
