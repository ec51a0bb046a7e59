// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/data/sources.hpp"

#include "image_rows.hpp"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

// Endings of images' names, by which files are selected. The bytes decide how they are decoded.

bool is_tiff_ending(std::string_view ending) {
    return ending == ".tif" || ending == ".tiff";
}

/// Returns true if files with this ending (".png", in lower case) are read; those of libtiff only
/// in a build that has it.
bool is_read_image(std::string_view ending) {
    constexpr std::string_view always[] = {".png", ".jpg", ".jpeg", ".ppm", ".pgm", ".pnm"};
    return std::ranges::count(always, ending) > 0 || (is_tiff_ending(ending) && reads_tiff());
}

bool lacks_libtiff(std::string_view ending) {
    return is_tiff_ending(ending) && !reads_tiff();
}

/// Returns true for the ending of an image that is not read.
bool is_foreign_image(std::string_view ending) {
    constexpr std::string_view never[] = {".bmp", ".gif", ".heic", ".avif", ".jp2"};
    return std::ranges::count(never, ending) > 0 || lacks_libtiff(ending);
}

/// What is_read_image() is true for.
std::string_view read_images_text() {
    return reads_tiff() ? "PNG, JPEG, PPM, PGM or TIFF" : "PNG, JPEG, PPM or PGM";
}

struct ClassImage {
    std::int64_t label = 0;
    std::string name;
};

// Files that are left out: how many of each ending.
using LeftOut = std::map<std::string, std::uint64_t>;

bool has_any(const LeftOut& files, bool (*is_such)(std::string_view ending)) {
    return std::ranges::any_of(files, [&](const auto& other) { return is_such(other.first); });
}

// The content of a folder: sub-folders or images by name, and other files.
struct Listing {
    std::vector<std::string> names;
    LeftOut others;
};

std::string way_past_bad_image(const fs::path& path) {
    const std::string word = shell_word(path.string());
    return path.extension() == ".png"
               ? "remove it: rm " + word
               : fmt::format(
                     "let ImageMagick write a PNG in its place, if it can: mogrify -format "
                     "png {0} && rm {0}; or remove it: rm {0}",
                     word);
}

// WebP files beside others were packed once: they must not be left out.
void refuse_webp(const fs::path& image, const fs::path& classes) {
    throw not_packable(
        image,
        fmt::format("it is a WebP file, and only {} are read", read_images_text()),
        fmt::format("make PNG of all that are there, by dwebp (Debian: webp): find -L {} -iname "
                    "'*.webp' -exec dwebp -quiet {{}} -o {{}}.png \\; -delete",
                    shell_word(classes.string())));
}

// In lower case.
std::string ending_of(const fs::path& path) {
    std::string ending = path.extension();
    for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return ending;
}

// Returns the way to pack left-out files; "" if they are no images.
std::string way_out(const LeftOut& left_out) {
    if (!has_any(left_out, is_foreign_image)) return "";
    return fmt::format(
        "{}make PNG of images, for example with ImageMagick (Debian: imagemagick): mogrify -format "
        "png FILES",
        has_any(left_out, lacks_libtiff)
            ? "build Lockstep where Debian's libtiff-dev is installed, or "
            : "");
}

void warn_of(const fs::path& folder, const LeftOut& left_out) {
    std::vector<std::string> counts;
    for (const auto& [ending, count] : left_out)
        counts.push_back(fmt::format(
            "{} {}", grouped(count), ending.empty() ? "without ending" : printable(ending)));
    if (counts.empty()) return;
    const std::string way = way_out(left_out);
    once(Level::warn,
         "'{}': files that are not {} by name are left out: {}{}{}",
         printable(folder.string()),
         read_images_text(),
         fmt::join(counts, ", "),
         way.empty() ? "" : "; ",
         way);
}

// A link that leads in circles, or nowhere, has no type.
fs::file_type type_of(const fs::directory_entry& entry) {
    std::error_code failed;
    const fs::file_status status = entry.status(failed);
    if (failed || status.type() == fs::file_type::not_found)
        throw not_packable(entry.path(),
                           "it is a link that leads nowhere",
                           "remove it: rm " + shell_word(entry.path().string()));
    return status.type();
}

template <class Visit>
void for_each_entry(const fs::path& folder, Visit&& visit) {
    try {
        for (const fs::directory_entry& entry : fs::directory_iterator(folder))
            if (!entry.path().filename().string().starts_with('.')) visit(entry);
    } catch (const fs::filesystem_error& error) {
        throw system_error("read", folder, error.code().value());
    }
}

// The sub-folders; "" stands for the folder itself, whose images count for `images` alone.
Listing list_folders(const fs::path& folder, FolderContent content) {
    Listing listing;
    for_each_entry(folder, [&](const fs::directory_entry& entry) {
        if (type_of(entry) == fs::file_type::directory)
            listing.names.push_back(entry.path().filename());
        else
            ++listing.others[ending_of(entry.path())];
    });
    std::ranges::sort(listing.names);
    const bool has_images = has_any(listing.others, is_read_image);
    if (content == FolderContent::images && (has_images || listing.names.empty())) {
        listing.names.insert(listing.names.begin(), "");
        listing.others.clear();  // counted with its images
    }
    if (listing.names.empty())
        throw not_packable(
            folder,
            "it has no sub-folders, of which each is a class",
            fmt::format("put the images of each class into a folder of their own; for one class "
                        "of all, give NAME after: mkdir NAME && ln -s {} NAME/all",
                        shell_word(fs::absolute(folder).string())));
    return listing;
}

std::string no_images(const LeftOut& others) {
    const auto foreign = std::ranges::find_if(
        others, [](const auto& other) { return is_foreign_image(other.first); });
    return foreign == others.end() ? "it has no images"
                                   : fmt::format("it has {} files, and no {}: {}",
                                                 foreign->first,
                                                 read_images_text(),
                                                 way_out(others));
}

Listing list_images(const fs::path& folder, bool may_have_folders) {
    Listing listing;
    for_each_entry(folder, [&](const fs::directory_entry& entry) {
        const fs::file_type type = type_of(entry);
        if (type == fs::file_type::directory && may_have_folders) return;
        if (type == fs::file_type::directory)
            throw not_packable(
                entry.path(),
                "it is a folder within the folder of a class",
                fmt::format("give --folder {} if its folders are the classes, or move it away",
                            shell_word(folder.string())));
        if (ending_of(entry.path()) == ".webp") refuse_webp(entry.path(), folder.parent_path());
        if (type == fs::file_type::regular && is_read_image(ending_of(entry.path())))
            listing.names.push_back(entry.path().filename());
        else
            ++listing.others[ending_of(entry.path())];
    });
    std::ranges::sort(listing.names);
    if (listing.names.empty())
        throw not_packable(folder,
                           no_images(listing.others),
                           "put images there, or move this folder out of the one that you give");
    return listing;
}

class FolderSource : public RowSource {
  public:
    FolderSource(const fs::path& folder, const FolderOptions& options)
        : folder_(folder), options_(options) {
        find_images();
        samples_ = images_.size();
        rows_.emplace(options_.images, decoded(0), place_of(0));
        fields_.push_back({.name = "images", .shape = rows_->shape(), .layout = "CHW"});
        if (options.content == FolderContent::classes)
            fields_.push_back(
                {.name = "labels", .type = ElementType::i64, .class_names = folders_});
    }

    void read(std::size_t field, std::uint64_t row, std::span<std::byte> out) const override {
        if (field == 1) {
            std::memcpy(out.data(), &images_[row].label, sizeof(std::int64_t));
            return;
        }
        rows_->write(decoded(row), place_of(row), out);
    }

    std::string row_name(std::uint64_t row) const override {
        return (fs::path(folders_[static_cast<std::size_t>(images_[row].label)]) /
                images_[row].name)
            .string();
    }

    Hash128 fingerprint() const override {
        Hasher128 hasher;
        add(hasher, fmt::format("{}", fmt::join(fields_[0].shape, "x")));
        std::vector<std::uint64_t> deep, veiled;
        for (std::uint64_t row = 0; row < images_.size(); ++row) {
            const std::string content = read_file(path_of(row), largest_image_file);
            add(hasher, fmt::format("{} {}\n", row_name(row), content.size()));
            add(hasher, content);
            const auto bytes = bytes_of(std::string_view(content));
            if (channel_bits(bytes) > 8) deep.push_back(row);
            if (has_alpha(bytes)) veiled.push_back(row);
        }
        warn_of_lost(
            deep,
            "16 bits per channel",
            "the upper 8 are packed. To keep all 16, make an NPY file of float32 or uint16 "
            "of them: --npy images=FILE");
        warn_of_lost(veiled,
                     "an alpha channel",
                     "it is left out, and colours that it makes invisible are packed");
        return hasher.value();
    }

  private:
    // Said here, where all files are read once before anything is packed.
    void warn_of_lost(const std::vector<std::uint64_t>& rows,
                      const char* what,
                      const char* becomes) const {
        if (rows.empty()) return;
        once(Level::warn,
             "{} of {} images have {}, the first of them '{}': {}",
             grouped(rows.size()),
             grouped(images_.size()),
             what,
             printable(path_of(rows[0]).string()),
             becomes);
    }

    static void add(Hasher128& hasher, std::string_view text) { hasher.add(bytes_of(text)); }

    void find_images() {
        if (options_.content == FolderContent::images && fs::is_regular_file(status_of(folder_))) {
            folders_ = {""};
            images_ = {{0, folder_.filename().string()}};
            folder_ = folder_.parent_path();
            return;
        }
        const Listing folders = list_folders(folder_, options_.content);
        LeftOut left_out = folders.others;
        for (const std::string& name : folders.names) {
            Listing listing = list_images(folder_ / name, name.empty());
            const auto label = static_cast<std::int64_t>(folders_.size());
            folders_.push_back(name);
            for (std::string& image : listing.names) images_.push_back({label, std::move(image)});
            for (const auto& [ending, count] : listing.others) left_out[ending] += count;
        }
        warn_of(folder_, left_out);
    }

    fs::path path_of(std::uint64_t row) const { return folder_ / row_name(row); }

    // As messages have it.
    std::string place_of(std::uint64_t row) const {
        return fmt::format("'{}'", path_of(row).string());
    }

    Image decoded(std::uint64_t row) const {
        const fs::path path = path_of(row);
        const std::string content = read_file(path, largest_image_file);
        return decoded_image(bytes_of(content), place_of(row), way_past_bad_image(path));
    }

    fs::path folder_;
    FolderOptions options_;
    std::vector<std::string> folders_;  // names of classes, if they are some
    std::vector<ClassImage> images_;
    std::optional<ImageRows> rows_;
};

}  // namespace

Error not_packable(const fs::path& path, const std::string& why, const std::string& fix) {
    return Error("E214", fmt::format("'{}' cannot be packed", path.string()), why, fix);
}

Image decoded_image(std::span<const std::byte> content,
                    const std::string& place,
                    const std::string& fix) {
    const std::string what = fmt::format("image {} cannot be decoded", place);
    try {
        return decode_image(content);
    } catch (const BadImage& bad) {
        throw Error("E237", what, printable(bad.what()), fix);
    } catch (const NoDecoder& none) {
        throw Error("E249", what, none.what(), none.fix());
    }
}

ImageRows::ImageRows(const ImageFit& fit, const Image& first, std::string place)
    : fit_(fit),
      size_(fit.resize.value_or(ImageSize{first.height, first.width})),
      channels_(fit.color == Color::rgb    ? 3
                : fit.color == Color::gray ? 1
                                           : first.channels),
      first_(std::move(place)) {}

void ImageRows::write(Image image, const std::string& place, std::span<std::byte> out) const {
    const ImageSize size{image.height, image.width};
    check(fit_.resize || size == size_, [&] {
        return Error(
            "E238",
            fmt::format("image {} is {} x {}", place, size.height, size.width),
            fmt::format("the first one, {}, is {} x {}", first_, size_.height, size_.width),
            "give --resize HEIGHTxWIDTH");
    });
    check(fit_.color != Color::as_first || image.channels <= channels_, [&] {
        return Error("E238",
                     fmt::format("image {} has colours", place),
                     fmt::format("the first one, {}, is grey", first_),
                     "give --color rgb or --color gray");
    });
    image = with_channels(std::move(image), channels_);
    if (size != size_) image = resized(image, size_.height, size_.width);
    const std::size_t channels = image.channels, plane = out.size() / channels;
    for (std::size_t c = 0; c < channels; ++c)
        for (std::size_t p = 0; p < plane; ++p)
            out[c * plane + p] = static_cast<std::byte>(image.pixels[p * channels + c]);
}

bool is_image_name(const fs::path& file) {
    return is_read_image(ending_of(file));
}

std::unique_ptr<RowSource> open_folder(const fs::path& folder, const FolderOptions& options) {
    return std::make_unique<FolderSource>(folder, options);
}

ImageSize parse_image_size(const std::string& option, std::string_view text) {
    const auto cut = text.find('x');
    const auto height = parse_integer(text.substr(0, cut));
    const auto width = parse_integer(cut == text.npos ? "" : text.substr(cut + 1));
    constexpr std::int64_t most = 1 << 13;
    check(height && width && *height >= 1 && *width >= 1 && *height <= most && *width <= most,
          "E103",
          fmt::format("--{} is '{}'", option, text),
          fmt::format("it must be HEIGHTxWIDTH, each 1 to {}", most),
          fmt::format("for example --{} 224x224", option));
    return {static_cast<std::uint32_t>(*height), static_cast<std::uint32_t>(*width)};
}

}  // namespace lockstep
