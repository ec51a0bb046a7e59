// SPDX-License-Identifier: Apache-2.0
#include "field_plan.hpp"

#include "lockstep/data/manifest.hpp"

#include "format/labels.hpp"
#include "format/manifest_fields.hpp"
#include "hdf5/row_layout.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>

#include <fmt/format.h>

namespace lockstep {
namespace {

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

// Two or three dimensions of what has fewer or more; "" where nothing is likely.
std::string image_numbers(const std::vector<std::int64_t>& shape) {
    if (shape.size() > 3) {
        const auto kept = shape.end() - 2;
        const std::int64_t first =
            std::accumulate(shape.begin(), kept, std::int64_t{1}, std::multiplies<>());
        return fmt::format("x.reshape(len(x), {}, {})", first, fmt::join(kept, shape.end(), ", "));
    }
    const std::int64_t pixels = shape.size() == 1 ? shape[0] : 0;
    const auto side_of = [](std::int64_t square) {
        const auto side = static_cast<std::int64_t>(std::lround(std::sqrt(square)));
        return side * side == square ? side : 0;
    };
    if (const std::int64_t side = side_of(pixels); side > 1)
        return fmt::format("x.reshape(len(x), {0}, {0})", side);
    const std::int64_t side = pixels % 3 == 0 ? side_of(pixels / 3) : 0;
    return side > 1 ? fmt::format("x.reshape(len(x), 3, {0}, {0})", side) : "";
}

std::string way_to_images(const std::vector<std::int64_t>& shape, const FieldWays& ways) {
    if (!ways.given) return "";
    const std::string numbers = image_numbers(shape), other = ways.given("features", false);
    if (numbers.empty()) return "call them otherwise: " + other;
    return (shape.size() > 3 ? "" : "call them otherwise, " + other + "; or ") +
           "give them such dimensions: " + ways.rewritten(numbers);
}

FieldPlan plan_images(Field field,
                      ImageLayout layout,
                      const fs::path& origin,
                      const FieldWays& ways) {
    auto& shape = field.shape;
    const bool is_flat = shape.size() == 2;
    if (is_flat) shape.insert(shape.begin(), 1);
    check(shape.size() == 3, [&] {
        return malformed_input(
            origin,
            "a file of images",
            fmt::format("a sample has {} dimensions; images have 2 or 3", field.shape.size()),
            way_to_images(field.shape, ways));
    });
    field.layout = "CHW";
    check(is_flat || layout != ImageLayout::unstated || !may_have_channels_last(shape), [&] {
        return Error("E106",
                     fmt::format("images of '{}' are {}, which looks like height x width x "
                                 "channels",
                                 origin.string(),
                                 fmt::join(shape, " x ")),
                     "data sets have channels first; images are only converted with --layout hwc",
                     "give --layout hwc, or --layout chw if the first number counts channels");
    });
    if (is_flat || layout != ImageLayout::hwc) return {std::move(field), {}};
    std::rotate(shape.begin(), shape.begin() + 2, shape.end());
    const auto channels = static_cast<std::size_t>(shape[0]);
    RowTransform transform = channels_first(channels, element_bytes(field.type));
    return {std::move(field), std::move(transform)};
}

std::string way_to_labels(const Field& field, const FieldWays& ways) {
    if (!ways.given) return "";
    const std::size_t dimensions = field.shape.size();
    if (dimensions == 2)
        return "if each pixel has a class: " + ways.given("masks", !is_whole(field.type));
    if (dimensions > 2)
        return "give each sample one row: " + ways.rewritten("x.reshape(len(x), -1)");
    return fmt::format("to predict these numbers: {}; if they are classes: {}",
                       ways.given("targets", false),
                       ways.given(field.name, true));
}

FieldPlan plan_labels(Field field, const fs::path& origin, const FieldWays& ways) {
    const bool is_one = std::ranges::count(field.shape, 1) == std::ssize(field.shape);
    const bool is_several = field.shape.size() == 1 && !is_one;
    if (is_several) return {std::move(field), {}};
    check(is_one && is_whole(field.type), [&] {
        return malformed_input(
            origin,
            "a file of labels",
            fmt::format("a sample is {} [{}]; '{}' are one whole number each, or a number from 0 "
                        "to 1 for each class",
                        element_name(field.type),
                        fmt::join(field.shape, ", "),
                        field.name),
            way_to_labels(field, ways));
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
    if (from == ElementType::i64) return {};
    return [from](std::span<const std::byte> stored, std::span<std::byte> out) {
        const std::int64_t wide = label_at(from, stored, 0);
        std::memcpy(out.data(), &wide, sizeof wide);
    };
}

FieldPlan plan_field(const std::string& name,
                     ElementType type,
                     std::vector<std::int64_t> shape,
                     ImageLayout layout,
                     const fs::path& origin,
                     const FieldWays& ways) {
    Field field{.name = name, .type = type, .shape = std::move(shape)};
    if (name == "images") return plan_images(std::move(field), layout, origin, ways);
    if (is_label_name(name)) return plan_labels(std::move(field), origin, ways);
    if (name == "masks" && field.shape.size() == 2) field.layout = "HW";
    return {std::move(field), {}};
}

void check_has_images(const std::vector<NamedInput>& inputs, ImageLayout layout) {
    const bool has_images = std::ranges::count(inputs, "images", &NamedInput::field) > 0;
    check(has_images || layout == ImageLayout::unstated, [] {
        return Error("E106",
                     "--layout is given, and no field is called 'images'",
                     "it is the layout of images, and other fields are not converted",
                     "drop it, or name the field of images 'images'");
    });
}

void check_has_channels(const NamedInput& images,
                        ImageLayout layout,
                        std::uint64_t count,
                        const std::vector<std::int64_t>& shape,
                        const std::string& one_each) {
    const bool may_be_flat = images.field != "images" || layout == ImageLayout::unstated;
    check(may_be_flat || shape.size() != 2, [&] {
        return misfit(row_layout(layout),
                      {.field = images.field,
                       .place = fmt::format("'{}'", images.place),
                       .count = count,
                       .shape = shape,
                       .one_each = one_each,
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
