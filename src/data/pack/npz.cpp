// SPDX-License-Identifier: Apache-2.0
// NumPy's archives: zip files of NPY files, as savez() stores them and savez_compressed() deflates
// them.
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/core/zip_file.hpp"
#include "lockstep/data/sources.hpp"

#include "column.hpp"
#include "npy_header.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <zlib.h>

namespace lockstep {
namespace {

constexpr std::uint64_t npz_bytes_at_once = std::uint64_t{1} << 20;
constexpr const char* npz_kind = "an archive of NumPy's that can be packed";

const ZipRules npz_rules{.takes_deflated = true,
                         .refuse = [](const fs::path& path, const std::string& why) {
                             throw malformed_input(path, npz_kind, why);
                         }};

/// "a.npz:NAME"; no name: the archive alone.
struct NpzPlace {
    fs::path archive;
    std::string name;
};

bool is_zip(const fs::path& path) {
    return fs::is_regular_file(status_of(path)) && InputFile(path).begins_with("PK\3\4");
}

// A file that has a colon in its name is that file.
std::optional<NpzPlace> npz_place(const std::string& place) {
    if (is_zip(place)) return NpzPlace{place, ""};
    const std::size_t colon = place.rfind(':');
    if (colon == place.npos || fs::exists(status_of(place)) || !is_zip(place.substr(0, colon)))
        return {};
    return NpzPlace{place.substr(0, colon), place.substr(colon + 1)};
}

// Raw deflate (RFC 1951), a piece at a time. Move-only.
class Inflating {
  public:
    Inflating() { expect(inflateInit2(&stream_, -MAX_WBITS) == Z_OK, "zlib begins"); }
    ~Inflating() { inflateEnd(&stream_); }
    Inflating& operator=(Inflating&&) = delete;

    /// Gives what `piece` expands to in pieces to `take`. Returns false for damaged bytes.
    template <class Take>
    bool add(std::string& piece, Take&& take) {
        stream_.next_in = reinterpret_cast<Bytef*>(piece.data());
        stream_.avail_in = static_cast<uInt>(piece.size());
        do {
            stream_.next_out = reinterpret_cast<Bytef*>(out_.data());
            stream_.avail_out = static_cast<uInt>(out_.size());
            const int state = inflate(&stream_, Z_NO_FLUSH);
            if (state != Z_OK && state != Z_STREAM_END && state != Z_BUF_ERROR) return false;
            if (!take(std::span<const std::byte>(out_).first(out_.size() - stream_.avail_out)))
                return true;
            if (state == Z_STREAM_END) return true;
        } while (stream_.avail_out == 0);
        return true;
    }

  private:
    z_stream stream_{};
    std::vector<std::byte> out_ = std::vector<std::byte>(npz_bytes_at_once);
};

// Gives the first `most` bytes of an entry, or all, whose checksum must be right, to `spool`.
void expand(const ZipFile& archive,
            const ZipEntry& entry,
            std::uint64_t most,
            Spool& spool,
            const ReadReport& report = {}) {
    std::uint64_t done = 0, taken = 0;
    std::uint32_t crc = 0;
    Inflating inflating;
    const auto take = [&](std::span<const std::byte> bytes) {
        taken += bytes.size();
        archive.require(taken <= entry.bytes, [] { return "an array is larger than it says"; });
        crc = zip_crc(bytes, crc);
        spool.append(bytes);
        return taken < most;
    };
    while (done < entry.stored && taken < most) {
        std::string piece =
            archive.bytes_at(entry.offset + done, std::min(entry.stored - done, npz_bytes_at_once));
        done += piece.size();
        if (report) report(done, entry.stored);
        if (!entry.is_deflated)
            take(std::as_bytes(std::span(piece)));
        else
            archive.require(inflating.add(piece, take),
                            [] { return "what was deflated is damaged"; });
    }
    const bool is_part = taken >= most && most < entry.bytes;
    archive.require(is_part || (taken == entry.bytes && crc == entry.crc), [] {
        return "an array has another size or checksum than when it was written";
    });
}

std::string array_text(const ZipFile& archive, const std::string& name, const ZipEntry& entry) {
    constexpr std::uint64_t most_header = 65536;
    Spool spool;
    expand(archive, entry, std::min(entry.bytes, most_header), spool);
    const auto head = spool.finish(archive.path() / name);
    if (!is_npy(*head)) return name + ", which is no array";
    try {
        const NpyLayout layout = read_npy_layout(*head);
        return fmt::format("{} {} [{}]", name, layout.descr, fmt::join(layout.shape, ", "));
    } catch (const Error& error) {
        return fmt::format("{}, of which {}", name, error.why());  // another one is asked for
    }
}

Error no_such_array(const ZipFile& archive, const NamedInput& input, const NpzPlace& place) {
    constexpr std::size_t most_shown = 20;
    std::vector<std::string> names, texts;
    for (const auto& [name, entry] : archive.entries()) {
        names.push_back(name.ends_with(".npy") ? name.substr(0, name.size() - 4) : name);
        if (texts.size() < most_shown) texts.push_back(array_text(archive, names.back(), entry));
    }
    if (names.size() > texts.size())
        texts.push_back(fmt::format("and {} more", names.size() - texts.size()));
    const std::string nearest = nearest_name(place.name, names);
    const std::string meant = !nearest.empty() ? nearest : names.empty() ? "NAME" : names.front();
    const std::string archive_text = archive.path().string();
    return malformed_input(
        archive.path(),
        place.name.empty() ? "one array" : fmt::format("an archive with an array '{}'", place.name),
        fmt::format("{}; its arrays are {}",
                    place.name.empty() ? "it is NumPy's .npz, a zip archive of arrays"
                                       : "no array has that name",
                    printable(fmt::format("{}", fmt::join(texts, "; ")))),
        fmt::format("name one, such as --npy {}",
                    shell_word(fmt::format("{}={}:{}", input.field, archive_text, meant))));
}

}  // namespace

bool is_npz_place(const std::string& place) {
    return npz_place(place).has_value();
}

std::shared_ptr<const InputFile> open_npy_file(const NamedInput& input,
                                               const SourceOptions& options) {
    const std::optional<NpzPlace> place = npz_place(input.place);
    if (!place) return std::make_shared<const InputFile>(input.place);
    const ZipFile archive(place->archive, npz_rules);
    const ZipEntry* entry = archive.find(place->name + ".npy");
    if (!entry) entry = archive.find(place->name);
    if (!entry) throw no_such_array(archive, input, *place);
    Spool spool;
    expand(archive, *entry, entry->bytes, spool, options.report);
    return spool.finish(input.place);
}

}  // namespace lockstep
