// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/pack.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/data/check.hpp"

#include "format/codec.hpp"
#include "format/manifest_fields.hpp"
#include "hdf5/shard_writer.hpp"
#include "pack_space.hpp"
#include "stream/ordered_work.hpp"

#include <algorithm>
#include <cctype>
#include <numeric>

#include <fmt/format.h>

namespace lockstep {
namespace {

// Plans a pack before anything is read: pure functions of the source's shape and options.

constexpr std::uint64_t usual_shard_bytes = std::uint64_t{512} << 20;
constexpr std::uint64_t usual_block_bytes = std::uint64_t{512} << 10;
constexpr std::uint64_t usual_blocks = 128, fewest_usual_rows = 32;
constexpr std::string_view pack_writer = "lockstep pack 1";

std::string name_of(const PackOptions& options) {
    const fs::path output = fs::absolute(options.output).lexically_normal();
    std::string name = options.name;
    if (name.empty()) name = output.filename().string();
    if (name.empty()) name = output.parent_path().filename().string();
    const bool is_plain = !name.empty() && name[0] != '.' && name[0] != '-' && name.size() <= 200 &&
                          std::ranges::all_of(name, [](unsigned char c) {
                              return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
                          });
    check(is_plain,
          "E102",
          fmt::format("'{}' cannot be the name of a data set", name),
          "a name has letters, digits, '.', '_' and '-', and does not begin with '.' or '-'",
          "give one with --name");
    return name;
}

// The largest power of two of rows that stays below the usual size; smaller for small data, so that
// there are blocks enough to shuffle.
std::uint32_t block_rows_of(const RowSource& source, const PackOptions& options) {
    if (options.block_rows > 0) return options.block_rows;
    std::size_t row_bytes = 1;
    for (const Field& field : source.fields())
        row_bytes = std::max(row_bytes, field.bytes_per_sample());
    std::uint64_t rows = 1;
    while (rows * 2 * row_bytes <= usual_block_bytes) rows *= 2;
    while (rows > fewest_usual_rows && source.samples() / rows < usual_blocks) rows /= 2;
    return static_cast<std::uint32_t>(rows);
}

/// Returns the size of all fields, uncompressed.
std::uint64_t raw_bytes_of(const Manifest& manifest) {
    return manifest.samples * manifest.bytes_per_sample();
}

std::size_t shard_count(const Manifest& manifest, int asked) {
    const std::uint64_t blocks = (manifest.samples - 1) / manifest.block_rows + 1;
    check(asked >= 0, "E102", fmt::format("{} shards", asked), "0 = as fits");
    if (asked == 0)
        return std::clamp<std::uint64_t>(raw_bytes_of(manifest) / usual_shard_bytes, 1, blocks);
    check(static_cast<std::uint64_t>(asked) <= blocks,
          "E106",
          fmt::format("{} shards for {} blocks of {} rows",
                      asked,
                      grouped(blocks),
                      grouped(manifest.block_rows)),
          "a shard has at least one block",
          "ask for fewer shards or smaller blocks");
    return static_cast<std::size_t>(asked);
}

/// RFC 9562, version 8: made from what it names, so that equal packs are equal. `manifest` has its
/// statistics.
std::string uuid_of(Manifest manifest, const std::string& content) {
    const std::size_t shards = manifest.shards.size();
    manifest.shards.clear();
    manifest.uuid.clear();
    return uuid_from(
        hash128(fmt::format("{} {} {}", manifest_text(manifest), content, shards)).hex());
}

/// Errors: E102, E106 if the options about classes make no sense.
void check_classes(const PackOptions& options) {
    const auto named = static_cast<std::int64_t>(options.class_names.size());
    check(named == 0 || options.classes == 0 || named == options.classes,
          "E106",
          fmt::format("{} class names for {} classes", named, options.classes),
          "each class has one name",
          "give as many names as classes, or only the names");
    check(options.classes >= 0 && options.classes <= max_classes,
          "E102",
          fmt::format("{} classes", options.classes),
          fmt::format("0 (count them) to {} are possible", max_classes));
}

/// The manifest but for statistics, uuid and what shards hold: they have names and samples.
/// Errors: E102, E106 (options), E214 (no samples).
Manifest outline(const RowSource& source, const PackOptions& options) {
    check(source.samples() > 0, "E214", "the input has no samples");
    check_classes(options);
    Manifest manifest;
    manifest.name = name_of(options);
    manifest.split = options.split;
    manifest.writer = pack_writer;
    manifest.row_order = options.shuffle_seed ? fmt::format("shuffled:{}", *options.shuffle_seed)
                                              : source.row_order();
    manifest.codec = options.codec;
    manifest.samples = source.samples();
    manifest.block_rows = block_rows_of(source, options);
    manifest.fields = source.fields();
    const std::size_t count = shard_count(manifest, options.shards);
    const std::uint64_t blocks = (manifest.samples - 1) / manifest.block_rows + 1;
    for (std::size_t i = 0; i < count; ++i) {
        const auto first_of = [&](std::uint64_t shard) {
            return std::min(manifest.samples, blocks * shard / count * manifest.block_rows);
        };
        manifest.shards.push_back(
            {.name = fmt::format("{}-{:05}-of-{:05}.h5", manifest.name, i, count),
             .samples = first_of(i + 1) - first_of(i),
             .first_sample = first_of(i)});
    }
    return manifest;
}

/// All that decides the bytes of the result, by the words of the options. `content` is the source's
/// fingerprint. Errors: E102 (level).
Json identity_of(const Manifest& manifest, const PackOptions& options, const std::string& content) {
    return {{"writer", manifest.writer},
            {"name", manifest.name},
            {"split", manifest.split},
            {"row order", manifest.row_order},
            {"codec", codec_name(manifest.codec)},
            {"level", Encoder(options.codec, options.level).level()},
            {"samples", manifest.samples},
            {"block rows", manifest.block_rows},
            {"shards", manifest.shards.size()},
            {"classes", options.classes},
            {"class names", options.class_names},
            {"input", content}};
}

// One member's part in one pack.
class Packing {
  public:
    Packing(const RowSource& source, const PackOptions& options, const PackReport& report)
        : source_(source),
          options_(options),
          report_(report),
          team_(options.team),
          size_(static_cast<std::size_t>(team_.size)),
          rank_(static_cast<std::size_t>(team_.rank)) {}

    PackResult run() {
        manifest_ = together(team_, [&] {
            check_is_free(options_.output);
            return outline(source_, options_);
        });
        content_ = by_root(team_, [&] { return source_.fingerprint().hex(); });
        const Json identity =
            together(team_, [&] { return identity_of(manifest_, options_, content_); });
        PackSpace space(options_, identity);
        prepare(space);
        const std::size_t resumed = manifest_.shards.size() - unfinished_.size();
        write_shards(space);
        together(team_, [&] {
            if (team_.is_root()) space.write_manifest(manifest_);
        });
        check_written(space);
        PackResult result{.path = options_.output,
                          .manifest = parse_manifest(manifest_text(manifest_), "manifest"),
                          .raw_bytes = raw_bytes_of(manifest_),
                          .stored_bytes = 0,
                          .resumed_shards = resumed};
        for (const Shard& shard : manifest_.shards) result.stored_bytes += shard.bytes;
        space.commit();
        return result;
    }

  private:
    // Statistics, identity, and what is there already.
    void prepare(PackSpace& space) {
        if (const auto known = space.known_fields())
            manifest_.fields = *known;
        else
            manifest_.fields = scan_fields(source_, options_, report_);
        manifest_.uuid = uuid_of(manifest_, content_);
        space.write_plan(manifest_.fields);
        const std::vector<std::optional<Shard>> finished =
            space.finished_shards(manifest_, report_);
        for (std::size_t i = 0; i < finished.size(); ++i) {
            if (!finished[i]) {
                unfinished_.push_back(i);
                continue;
            }
            manifest_.shards[i] = *finished[i];
            written_ += finished[i]->samples;
        }
        if (written_ > 0)
            once(Level::info,
                 "continuing an interrupted pack: {} of {} shards are finished",
                 finished.size() - unfinished_.size(),
                 finished.size());
        together(team_, [&] {
            if (!team_.is_root() || manifest_.codec != Codec::none) return;
            check_room(space.folder(),
                       (manifest_.samples - written_) * manifest_.bytes_per_sample(),
                       "the data set needs",
                       "",
                       "use another file system, or --codec lz4");
        });
    }

    // Round after round, each member writes one shard; then all know of it, and whether one failed.
    void write_shards(const PackSpace& space) {
        if (options_.shuffle_seed) rows_ = shuffled_rows(manifest_.samples, *options_.shuffle_seed);
        for (std::size_t first = 0; first < unfinished_.size(); first += size_) {
            const std::size_t at_once = std::min(size_, unfinished_.size() - first);
            const std::string mine = together(team_, [&] {
                if (rank_ >= at_once) return std::string();
                const Shard shard = write_one(space, unfinished_[first + rank_], at_once);
                return space.write_finished(shard);
            });
            const std::vector<std::string> entries = gather(team_, mine);
            for (std::size_t i = 0; i < at_once; ++i) {
                Shard& shard = manifest_.shards[unfinished_[first + i]];
                shard = space.shard_of(entries[i]);
                written_ += shard.samples;
            }
            together(team_, [&] { tell_written(written_); });
        }
    }

    void tell_written(std::uint64_t samples) const {
        if (report_) report_({"write", std::min(samples, manifest_.samples), manifest_.samples});
    }

    Shard write_one(const PackSpace& space, std::size_t number, std::size_t at_once) {
        const Shard& shard = manifest_.shards[number];
        const auto read = [&](std::size_t field, std::uint64_t row, std::span<std::byte> out) {
            source_.read(field, rows_.empty() ? row : rows_[row], out);
        };
        // The other members are about as far as this one.
        const auto tell = [&](std::uint64_t sample) {
            tell_written(written_ + (sample - shard.first_sample) * at_once);
        };
        const fs::path path = space.folder() / shard.name;
        try {
            return write_shard({manifest_, number, path},
                               read,
                               {options_.codec, options_.level, worker_count(options_.threads)},
                               tell);
        } catch (...) {
            std::error_code ignored;
            fs::remove(path, ignored);
            throw;
        }
    }

    void check_written(const PackSpace& space) const {
        const auto report = [&](std::uint64_t done, std::uint64_t total) {
            if (report_) report_({"verify", done, total});
        };
        const auto findings = verify_dataset(space.folder(), report, {options_.threads, team_});
        check(findings.empty(), [&] {
            return Error(
                "E213",
                "the written data read back differently",
                findings[0].text,
                "check this machine's memory and file system, then pack again with --restart");
        });
    }

    const RowSource& source_;
    const PackOptions& options_;
    const PackReport& report_;
    const Team& team_;
    std::size_t size_, rank_;
    std::string content_;
    Manifest manifest_;
    std::vector<std::size_t> unfinished_;  // numbers of shards
    std::vector<std::uint64_t> rows_;      // the source's, by row; empty if they are the same
    std::uint64_t written_ = 0;            // samples, by all members
};

}  // namespace

std::vector<std::uint64_t> shuffled_rows(std::uint64_t samples, std::uint64_t seed) {
    std::vector<std::uint64_t> rows(samples);
    std::iota(rows.begin(), rows.end(), std::uint64_t{0});
    shuffle(std::span(rows), CounterRandom(Purpose::pack_order, {seed}));
    return rows;
}

PackResult pack_dataset(const RowSource& source,
                        const PackOptions& options,
                        const PackReport& report) {
    return Packing(source, options, report).run();
}

}  // namespace lockstep
