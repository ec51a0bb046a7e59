// SPDX-License-Identifier: Apache-2.0
// Tested: data/check/verify_test.cpp.

#include "lockstep/core/error.hpp"
#include "lockstep/core/error_kind.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/record.hpp"
#include "lockstep/data/check.hpp"

#include "format/codec.hpp"
#include "format/index_columns.hpp"
#include "format/labels.hpp"
#include "hdf5/shard_probe.hpp"
#include "segments.hpp"
#include "stream/block_reader.hpp"
#include "stream/ordered_work.hpp"
#include "stream/request_plan.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace lockstep {

void describe(Record& record, Finding& finding) {
    LOCKSTEP_EACH(record.field, finding.code, finding.file, finding.field, finding.block);
    LOCKSTEP_EACH(record.field, finding.offset, finding.bytes, finding.text);
}

namespace {

using FindingGroups = std::vector<std::vector<Finding>>;

// Collective. Everyone's findings, group after group, each in the order of the members. All have
// as many groups.
std::vector<Finding> merged(const Team& team, FindingGroups mine) {
    const std::string origin = "another rank's findings";
    Record written;
    written.field("groups", mine);
    std::vector<FindingGroups> theirs;
    for (const std::string& one : gather(team, written.take_made().dump()))
        theirs.push_back(json_field<FindingGroups>(parse_json(one, origin), "groups", origin));
    std::vector<Finding> all;
    for (std::size_t group = 0; group < mine.size(); ++group)
        for (const FindingGroups& one : theirs)
            std::ranges::copy(one.at(group), std::back_inserter(all));
    return all;
}

// "what: why".
std::string sentence(const Error& error) {
    return error.why().empty() ? error.what() : fmt::format("{}: {}", error.what(), error.why());
}

// Everything about one shard that a single pass over its bytes can tell.

/// A shard to look at; `blocks` (by field) are what its index says, as far as that can be trusted.
struct ShardView {
    const Manifest& manifest;
    std::size_t number = 0;
    fs::path path;
    std::vector<std::vector<StoredBlock>> blocks;

    const Shard& shard() const { return manifest.shards[number]; }

    /// A finding about all of a block.
    Finding finding(const PlacedBlock& placed,
                    const std::string& code,
                    const std::string& why) const {
        const StoredBlock& block = placed.block;
        const Field& field = manifest.fields[placed.field];
        return {.code = code,
                .file = shard().name,
                .field = field.name,
                .block = static_cast<std::int64_t>(placed.number),
                .offset = block.offset,
                .bytes = block.stored_bytes,
                .text = damage_text(path, field, placed.number, block) + ": " + why};
    }
};

constexpr std::uint64_t usual_segment_bytes = std::uint64_t{4} << 20;

struct ReadSegment {
    std::vector<std::byte> bytes;
    std::vector<Finding> findings;
};

// One thread's part of a pass.
class SegmentReader {
  public:
    SegmentReader(const ShardView& shard, const SegmentPlan& plan)
        : shard_(shard), plan_(plan), fd_(open_for_reading(shard.path)) {}

    void operator()(std::uint64_t number, ReadSegment& out) {
        const FileSegment& segment = plan_.segments[number];
        out.findings.clear();
        out.bytes.resize(segment.bytes);
        const std::size_t got = read_at(fd_.value(), out.bytes, segment.offset, shard_.path);
        check(got == out.bytes.size(),
              [&] { return system_error("read all of", shard_.path, EIO); });
        for (const PlacedBlock& placed : segment.blocks) {
            const auto stored = std::span(out.bytes).subspan(placed.block.offset - segment.offset,
                                                             placed.block.stored_bytes);
            if (!is_intact(placed.block, stored)) {
                // Past the page cache, whose copy may be what is damaged.
                drop_pages(fd_.value(), placed.block.offset, stored.size());
                read_at(fd_.value(), stored, placed.block.offset, shard_.path);
            }
            if (auto finding = looked_at(placed, stored))
                out.findings.push_back(std::move(*finding));
        }
    }

  private:
    static bool is_intact(const StoredBlock& block, std::span<const std::byte> stored) {
        return !block.is_hashed || hash64(stored) == block.hash;
    }

    // Compares the hash, decodes, and checks labels.
    std::optional<Finding> looked_at(const PlacedBlock& placed, std::span<const std::byte> stored) {
        const StoredBlock& block = placed.block;
        if (!is_intact(block, stored))
            return shard_.finding(placed,
                                  "E213",
                                  fmt::format("their XXH3-64 is {}, the index says {}; read twice",
                                              hex64(hash64(stored)),
                                              hex64(block.hash)));
        if (block.codec != Codec::none) {
            decoded_.resize(block.decoded_bytes);
            if (!decoder_.decode(block.codec, stored, decoded_))
                return shard_.finding(
                    placed, "E213", fmt::format("they are not valid {}", codec_name(block.codec)));
            stored = decoded_;
        }
        const Field& field = shard_.manifest.fields[placed.field];
        const std::size_t row_bytes = field.bytes_per_sample();
        const auto bad = first_bad_label(field, stored.first(block.rows * row_bytes));
        if (!bad) return {};
        const std::uint64_t row = bad->element * element_bytes(field.type) / row_bytes;
        return shard_.finding(placed,
                              "E210",
                              fmt::format("{} of sample {} is out of range; there are {} classes",
                                          label_text(field, bad->label),
                                          grouped(block.first_row + row),
                                          field.classes()));
    }

    const ShardView& shard_;
    const SegmentPlan& plan_;
    UniqueFd fd_;
    Decoder decoder_;
    std::vector<std::byte> decoded_;
};

// One member's look at a data set: its shards are those whose number is its rank, modulo.
class Verification {
  public:
    Verification(fs::path folder,
                 const Manifest& manifest,
                 const VerifyReport& report,
                 const VerifyOptions& options)
        : folder_(std::move(folder)),
          manifest_(manifest),
          report_(report),
          threads_(static_cast<std::size_t>(worker_count(options.threads))),
          rank_(static_cast<std::size_t>(options.team.rank)),
          size_(static_cast<std::size_t>(options.team.size)) {}

    /// By shard.
    FindingGroups run() {
        FindingGroups all(manifest_.shards.size());
        for (std::size_t number = 0; number < all.size(); ++number) {
            total_ += manifest_.shards[number].bytes;
            if (number % size_ == rank_) mine_ += manifest_.shards[number].bytes;
        }
        for (std::size_t number = rank_; number < all.size(); number += size_) {
            const Shard& shard = manifest_.shards[number];
            try {
                verify_shard(number);
            } catch (const Error& error) {
                if (kind_of(error) == ErrorKind::helper_missing) throw;
                add({.code = error.code(), .file = shard.name, .text = sentence(error)});
            }
            all[number] = std::exchange(findings_, {});
            done_ += shard.bytes;
            tell(0);
        }
        return all;
    }

  private:
    void verify_shard(std::size_t number) {
        const Shard& shard = manifest_.shards[number];
        const fs::path path = path_beneath(folder_, shard.name);
        const std::uint64_t bytes = open_for_reading(path) ? fs::file_size(path) : 0;
        if (bytes != shard.bytes)
            add({.code = bytes < shard.bytes ? "E204" : "E213",
                 .file = shard.name,
                 .offset = std::min(bytes, shard.bytes),
                 .bytes = std::max(bytes, shard.bytes) - std::min(bytes, shard.bytes),
                 .text = fmt::format("'{}' has {} bytes; {} were written",
                                     path.string(),
                                     grouped(bytes),
                                     grouped(shard.bytes))});
        verify_content({manifest_, number, path, indexes_of(number, path)});
    }

    void verify_content(const ShardView& view) {
        const Shard& shard = view.shard();
        const std::string found = hash_of(view);
        if (found == shard.xxh3_128) return verify_structure(view);
        if (findings_.empty())
            add({.code = "E213",
                 .file = shard.name,
                 .text =
                     fmt::format("'{}' is damaged outside of its blocks, where HDF5 keeps its own "
                                 "structures: its XXH3-128 is {}, the manifest says {}",
                                 view.path.string(),
                                 found,
                                 shard.xxh3_128)});
    }

    // Reads the file once, in pieces, on threads that also check the blocks. What they find comes
    // in the order of the file.
    std::string hash_of(const ShardView& view) {
        const SegmentPlan plan =
            plan_segments(view.blocks, fs::file_size(view.path), usual_segment_bytes);
        std::vector<SegmentReader> readers;
        const auto useful = std::clamp<std::size_t>(plan.segments.size(), 1, threads_);
        for (std::size_t i = 0; i < useful; ++i) readers.emplace_back(view, plan);
        Hasher128 hasher;
        std::vector<Finding> found;
        work_in_order<ReadSegment>(
            plan.segments.size(), readers, [&](std::uint64_t at, auto& read) {
                hasher.add(read.bytes);
                std::ranges::move(read.findings, std::back_inserter(found));
                const std::uint64_t end = plan.segments[at].offset + plan.segments[at].bytes;
                tell(std::min(end, view.shard().bytes));
            });
        std::ranges::move(found, std::back_inserter(findings_));
        for (const PlacedBlock& placed : plan.cut_off)
            add(view.finding(placed, "E204", "they reach beyond the end of the file"));
        for (const PlacedBlock& placed : plan.overlaps)
            add(view.finding(placed, "E208", "they overlap with another block"));
        return hasher.value().hex();
    }

    std::vector<std::vector<StoredBlock>> indexes_of(std::size_t number, const fs::path& path) {
        const Shard& shard = manifest_.shards[number];
        std::vector<std::vector<StoredBlock>> all;
        for (std::size_t f = 0; f < manifest_.fields.size(); ++f) {
            auto blocks = read_index_rows(path, manifest_, number, f);
            const IndexPlace& place = shard.index[f];
            if (!blocks)
                add({.code = "E213",
                     .file = shard.name,
                     .field = manifest_.fields[f].name,
                     .offset = place.offset,
                     .bytes = place.blocks * index_row_bytes,
                     .text =
                         fmt::format("'{}' is damaged: the index of field '{}', {} bytes at offset "
                                     "{}, does not match its hash or names impossible blocks",
                                     path.string(),
                                     manifest_.fields[f].name,
                                     grouped(place.blocks * index_row_bytes),
                                     grouped(place.offset))});
            all.push_back(blocks.value_or(std::vector<StoredBlock>{}));
        }
        return all;
    }

    // Only for files whose every byte is right: what libhdf5 sees is what the index says. Whoever
    // made the file may have made the manifest too, so a child looks.
    void verify_structure(const ShardView& shard) {
        const auto probed = probe_shard(shard.path, manifest_, shard.number, &sandbox_).blocks;
        for (std::size_t f = 0; f < shard.blocks.size(); ++f) {
            const bool agrees = std::ranges::equal(
                probed[f], shard.blocks[f], [](const StoredBlock& seen, const StoredBlock& said) {
                    return seen.offset == said.offset && seen.stored_bytes == said.stored_bytes &&
                           seen.rows == said.rows && seen.codec == said.codec;
                });
            if (!agrees)
                add({.code = "E208",
                     .file = shard.shard().name,
                     .field = manifest_.fields[f].name,
                     .text =
                         fmt::format("'{}': HDF5 sees other blocks of field '{}' than the index",
                                     shard.path.string(),
                                     manifest_.fields[f].name)});
        }
    }

    void add(Finding finding) { findings_.push_back(std::move(finding)); }
    void tell(std::uint64_t done_in_shard) {
        if (!report_ || mine_ == 0) return;
        const double part = static_cast<double>(done_ + done_in_shard) / static_cast<double>(mine_);
        const auto done = size_ == 1
                              ? done_ + done_in_shard
                              : static_cast<std::uint64_t>(part * static_cast<double>(total_));
        report_(std::min(done, total_), total_);
    }

    fs::path folder_;
    const Manifest& manifest_;
    const VerifyReport& report_;
    Sandbox sandbox_;
    std::size_t threads_, rank_, size_;
    std::vector<Finding> findings_;
    std::uint64_t done_ = 0, mine_ = 0, total_ = 0;
};

// Files of others have no hashes: what can be told is whether every block can be read, expands to
// what it should, fits its checksums where it has some, and holds labels that are classes.

// One member's blocks, in their order.
std::vector<Finding> verify_blocks(const std::shared_ptr<const DatasetIndex>& index,
                                   const VerifyReport& report,
                                   const VerifyOptions& options) {
    const std::vector<FieldBlock> blocks =
        blocks_of_part(*index, options.team.rank, options.team.size);
    const auto members = static_cast<std::uint64_t>(options.team.size);
    std::uint64_t done = 0, total = 0;
    for (const FieldBlock& block : blocks) total += block.bytes;
    ShardFiles files(index);
    using Found = std::optional<Finding>;
    const auto make_look = [&] {  // of one thread
        return [&, reader = BlockReader(files)](std::uint64_t at, Found& found) mutable {
            found.reset();
            const FieldBlock& which = blocks[at];
            const auto& of_field = index->stored_blocks(which.field);
            const StoredBlock& block = of_field[which.block];
            if (block.shard == kept_in_index) return;
            try {
                reader.read_block(which.field, which.block);
            } catch (const Error& error) {
                const bool is_missing = kind_of(error) == ErrorKind::value_missing;
                if (!is_about_data(error) && !is_missing && error.code() != "E210") throw;
                const std::size_t number = number_in_shard(of_field, which.block);
                found = Finding{.code = error.code(),
                                .file = index->shards()[block.shard].name,
                                .field = index->fields()[which.field].name,
                                .block = static_cast<std::int64_t>(number),
                                .offset = block.offset,
                                .bytes = block.stored_bytes,
                                .text = sentence(error)};
            }
        };
    };
    std::vector<decltype(make_look())> looks;
    for (int i = worker_count(options.threads); i > 0; --i) looks.push_back(make_look());
    std::vector<Finding> findings;
    work_in_order<Found>(blocks.size(), looks, [&](std::uint64_t at, Found& found) {
        if (found) findings.push_back(std::move(*found));
        done += blocks[at].bytes;
        if (report) report(done * members, total * members);
    });
    return findings;
}

}  // namespace

std::vector<Finding> verify_dataset(const fs::path& folder,
                                    const VerifyReport& report,
                                    const VerifyOptions& options) {
    const Team& team = options.team;
    const std::string text = by_root(team, [&] { return read_manifest_text(folder); });
    const std::string file(manifest_name);
    Manifest manifest;
    try {
        manifest = parse_manifest(text, (folder / file).string());
    } catch (const Error& error) {
        return {{.code = error.code(), .file = file, .text = sentence(error)}};
    }
    return merged(team, together(team, [&] {
                      return Verification(folder, manifest, report, options).run();
                  }));
}

std::vector<Finding> verify_data(const fs::path& where,
                                 const std::vector<FieldMapping>& fields,
                                 const VerifyReport& report,
                                 const VerifyOptions& options) {
    if (fields.empty()) return verify_dataset(where, report, options);
    const std::string bytes = by_root(options.team, [&] {
        const auto opened = DatasetIndex::open(where, fields).serialize();
        return std::string(reinterpret_cast<const char*>(opened.data()), opened.size());
    });
    const auto index =
        std::make_shared<const DatasetIndex>(DatasetIndex::deserialize(bytes_of(bytes)));
    return merged(options.team,
                  {together(options.team, [&] { return verify_blocks(index, report, options); })});
}

}  // namespace lockstep
