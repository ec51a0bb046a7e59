// SPDX-License-Identifier: Apache-2.0
// A folder of masks beside a folder of images: files are pairs by their names without ending.
// Tested: data/pack/folder_source_test.cpp.
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/data/sources.hpp"

#include "image_rows.hpp"

#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>

namespace lockstep {
namespace {

// Names without ending, with the folder within `folder`, and their files within it.
using FilesByStem = std::map<std::string, std::string>;

std::string stem_of(const fs::path& file) {
    return (file.parent_path() / file.stem()).string();
}

FilesByStem list_masks(const fs::path& folder) {
    FilesByStem files;
    try {
        fs::recursive_directory_iterator at(folder,
                                            fs::directory_options::follow_directory_symlink);
        for (; at != fs::recursive_directory_iterator(); ++at) {
            const bool is_hidden = at->path().filename().string().starts_with('.');
            if (is_hidden || at.depth() > 0) at.disable_recursion_pending();
            if (is_hidden || at->is_directory()) continue;
            const fs::path file = at->path().lexically_relative(folder);
            const auto [other, is_new] = files.emplace(stem_of(file), file.string());
            check(is_new, [&] {
                return not_packable(at->path(),
                                    fmt::format("'{}' has its name, too", printable(other->second)),
                                    "move one of them away: a mask has its image's name");
            });
        }
    } catch (const fs::filesystem_error& error) {
        throw system_error("read", folder, error.code().value());
    }
    return files;
}

// The links that make a folder of those images that have masks.
std::string way_to_pairs(const fs::path& images, const fs::path& masks) {
    return fmt::format(
        "make its mask; or pack those that have one: mkdir NAME && for m in {}/*; do f=${{m##*/}}; "
        "f=${{f%.*}}; ln -s {}/\"${{f%_mask}}\".* NAME; done; then give --folder NAME",
        shell_word(fs::absolute(masks).string()),
        shell_word(fs::absolute(images).string()));
}

// Mask files in the order of the images' rows.
std::vector<std::string> paired(const RowSource& images,
                                const fs::path& folder,
                                const fs::path& masks) {
    constexpr std::string_view suffix = "_mask";
    FilesByStem files = list_masks(masks);
    std::map<std::string, std::string> owners;  // mask files and their images
    std::vector<std::string> in_order;
    for (std::uint64_t row = 0; row < images.samples(); ++row) {
        const std::string image = images.row_name(row), stem = stem_of(image);
        auto found = files.find(stem);
        if (found == files.end()) found = files.find(stem + std::string(suffix));
        check(found != files.end(), [&] {
            return not_packable(folder / image,
                                fmt::format("'{}' has no mask of its name, such as {}.png",
                                            masks.string(),
                                            printable(stem)),
                                way_to_pairs(folder, masks));
        });
        const auto [owner, is_new] = owners.emplace(found->second, image);
        check(is_new, [&] {
            return not_packable(folder / image,
                                fmt::format("its mask '{}' is that of '{}', too",
                                            printable(found->second),
                                            printable(owner->second)),
                                "give one of the two images another name, and its mask as well");
        });
        in_order.push_back(found->second);
    }
    for (const auto& [stem, file] : files)
        check(owners.contains(file), [&] {
            return not_packable(
                masks / file,
                fmt::format("'{}' has no image of its name", folder.string()),
                "move it away: mv " + shell_word((masks / file).string()) + " /tmp");
        });
    return in_order;
}

// Python's way from colours to numbers. Equal colours get equal numbers in all files.
std::string way_from_colours(const fs::path& masks, const std::string& ending) {
    return fmt::format(
        "if its channels are equal, keep one by ImageMagick: mogrify -channel R -separate "
        "{0}/*{1}; else let Pillow number the colours: python3 -c 'import os,sys,numpy as n; from "
        "PIL import Image; o,*r=sys.argv[1:]; os.makedirs(o); u={{}}; "
        "k=n.vectorize(lambda c:u.setdefault(c,len(u))); "
        "[Image.fromarray(k(n.asarray(Image.open(f).convert(\"RGB\"))@[65536,256,1])"
        ".astype(\"u1\")).save(os.path.join(o,os.path.basename(f))) for f in r]; "
        "print({{\"%06x\"%c:i for c,i in u.items()}})' NAME {0}/*{1}; then give --masks NAME",
        shell_word(masks.string()),
        shell_word(ending));
}

// The pixel of `in` whose middle is nearest, as in Pillow's NEAREST.
std::size_t nearest(std::size_t at, std::size_t in, std::size_t out) {
    return (2 * at + 1) * in / (2 * out);
}

class MaskedFolder : public RowSource {
  public:
    MaskedFolder(fs::path folder, fs::path masks, const FolderOptions& options)
        : folder_(std::move(folder)),
          masks_(std::move(masks)),
          is_resized_(options.images.resize.has_value()),
          images_(
              open_folder(folder_, {.content = FolderContent::images, .images = options.images})),
          files_(paired(*images_, folder_, masks_)),
          classes_(classes_of(options.mask_values)) {
        samples_ = images_->samples();
        fields_ = images_->fields();
        fields_.push_back(
            {.name = "masks", .shape = {fields_[0].shape[1], fields_[0].shape[2]}, .layout = "HW"});
    }

    std::string row_name(std::uint64_t row) const override { return images_->row_name(row); }

    void read(std::size_t field, std::uint64_t row, std::span<std::byte> out) const override {
        if (field == 0) return images_->read(0, row, out);
        const Image mask = decoded(row);
        const auto height = static_cast<std::size_t>(fields_[1].shape[0]);
        const auto width = static_cast<std::size_t>(fields_[1].shape[1]);
        for (std::size_t y = 0; y < height; ++y)
            for (std::size_t x = 0; x < width; ++x) {
                const std::size_t from = nearest(y, mask.height, height) * mask.width;
                const std::uint8_t value = mask.pixels[from + nearest(x, mask.width, width)];
                out[y * width + x] = static_cast<std::byte>(class_of(value, row));
            }
    }

    Hash128 fingerprint() const override {
        Hasher128 hasher;
        const auto add = [&](std::string_view text) { hasher.add(bytes_of(text)); };
        add(images_->fingerprint().hex());
        for (const int number : classes_) add(fmt::format(" {}", number));
        for (std::uint64_t row = 0; row < files_.size(); ++row) {
            const std::string content = read_file(path_of(row), largest_image_file);
            add(fmt::format("{} {}\n", files_[row], content.size()));
            add(content);
        }
        return hasher.value();
    }

  private:
    using Classes = std::array<int, 256>;  // by value; -1: none

    static Classes classes_of(const std::vector<std::uint8_t>& values) {
        Classes classes;
        for (int value = 0; value < 256; ++value)
            classes[static_cast<std::size_t>(value)] = values.empty() ? value : -1;
        for (std::size_t i = 0; i < values.size(); ++i) classes[values[i]] = static_cast<int>(i);
        return classes;
    }

    int class_of(std::uint8_t value, std::uint64_t row) const {
        check(classes_[value] >= 0, [&] {
            return Error("E210",
                         fmt::format("mask '{}' has a pixel of {}", path_of(row).string(), value),
                         "--mask-values does not name it",
                         "add it to --mask-values");
        });
        return classes_[value];
    }

    fs::path path_of(std::uint64_t row) const { return masks_ / files_[row]; }

    Image decoded(std::uint64_t row) const {
        const fs::path path = path_of(row);
        const std::string content = read_file(path, largest_image_file);
        Image mask = decoded(bytes_of(content), path);
        const ImageSize size{mask.height, mask.width}, wanted = image_size(row);
        check(size == wanted, [&] {
            return Error(
                "E238",
                fmt::format("mask '{}' is {} x {}", path.string(), size.height, size.width),
                fmt::format("its image '{}' is {} x {}",
                            printable(row_name(row)),
                            wanted.height,
                            wanted.width),
                "give both one size: a mask has a number for each pixel of its image");
        });
        return mask;
    }

    Image decoded(std::span<const std::byte> content, const fs::path& path) const {
        const auto unusable = [&](const std::string& why, const std::string& fix) {
            return Error(
                "E237", fmt::format("mask '{}' cannot be packed", path.string()), why, fix);
        };
        try {
            check(channel_bits(content) <= 8, [&] {
                return unusable("it has 16 bits per pixel, and classes are 0 to 255",
                                "pack arrays of i32 instead: --npy images=FILE --npy masks=FILE");
            });
            Image mask = decode_numbers(content);
            check(mask.channels == 1, [&] {
                return unusable("it has three channels, and a mask has one number for each pixel",
                                way_from_colours(masks_, path.extension().string()));
            });
            return mask;
        } catch (const BadImage& bad) {
            throw unusable(printable(bad.what()),
                           "save the numbers of its pixels as a PNG of one channel");
        } catch (const NoDecoder& none) {
            throw Error("E249",
                        fmt::format("mask '{}' cannot be decoded", path.string()),
                        none.what(),
                        none.fix());
        }
    }

    // Before it is resized.
    ImageSize image_size(std::uint64_t row) const {
        if (!is_resized_) {
            const auto& shape = fields_[0].shape;
            return {static_cast<std::uint32_t>(shape[1]), static_cast<std::uint32_t>(shape[2])};
        }
        const std::string content = read_file(folder_ / row_name(row), largest_image_file);
        const Image image = decode_image(bytes_of(content));
        return {image.height, image.width};
    }

    fs::path folder_, masks_;
    bool is_resized_;
    std::unique_ptr<RowSource> images_;
    std::vector<std::string> files_;  // within masks_, by row
    Classes classes_;
};

}  // namespace

std::unique_ptr<RowSource> open_masked_folder(const fs::path& folder,
                                              const fs::path& masks,
                                              const FolderOptions& options) {
    return std::make_unique<MaskedFolder>(folder, masks, options);
}

std::vector<std::uint8_t> parse_mask_values(std::string_view text) {
    std::vector<std::uint8_t> values;
    for (const std::string& word : split(text, ',')) {
        const auto value = parse_integer(word);
        const bool is_byte = value && *value >= 0 && *value <= 255;
        const bool is_new =
            is_byte && std::ranges::find(values, static_cast<std::uint8_t>(*value)) == values.end();
        check(is_new,
              "E103",
              fmt::format("--mask-values is '{}'", printable(text)),
              "it must be numbers 0 to 255 between commas, each once",
              "for example --mask-values 0,255");
        values.push_back(static_cast<std::uint8_t>(*value));
    }
    return values;
}

}  // namespace lockstep
