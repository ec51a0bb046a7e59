// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/verify.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/error_kind.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/numbers.hpp"

#include "block_check.hpp"
#include "findings.hpp"
#include "format/index_table.hpp"
#include "hdf5/shard_probe.hpp"
#include "shard_pass.hpp"
#include "team/ordered_work.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace lockstep {

namespace {

// One member's check of a data set: its shards are those whose number modulo the members is its
// rank.
class Verification {
  public:
    Verification(fs::path folder,
                 const Manifest& manifest,
                 const VerifyReport& report,
                 const VerifyOptions& options)
        : folder_(std::move(folder)),
          manifest_(manifest),
          report_(report),
          threads_(worker_count(options.threads)),
          rank_(static_cast<std::size_t>(options.team.rank)),
          size_(static_cast<std::size_t>(options.team.size)) {}

    /// By shard.
    std::vector<std::vector<Finding>> run();

  private:
    void verify_shard(std::size_t number);
    void verify_content(ShardView& shard);
    void verify_structure(const ShardView& shard);
    std::vector<std::vector<StoredBlock>> indexes_of(std::size_t number, const fs::path& path);

    void add(Finding finding) { findings_.push_back(std::move(finding)); }
    void add(const Error& error, const std::string& file) {
        add({.code = error.code(), .file = file, .field = {}, .text = sentence(error)});
    }
    void tell(const std::string& file, std::uint64_t done_in_shard) {
        if (!report_ || mine_ == 0) return;
        const double part = static_cast<double>(done_ + done_in_shard) / static_cast<double>(mine_);
        const auto done = size_ == 1
                              ? done_ + done_in_shard
                              : static_cast<std::uint64_t>(part * static_cast<double>(total_));
        report_({std::min(done, total_), total_, file});
    }

    fs::path folder_;
    const Manifest& manifest_;
    const VerifyReport& report_;
    Sandbox sandbox_;
    int threads_;
    std::size_t rank_, size_;
    std::vector<Finding> findings_;
    std::uint64_t done_ = 0, mine_ = 0, total_ = 0;
};

std::vector<std::vector<Finding>> Verification::run() {
    std::vector<std::vector<Finding>> all(manifest_.shards.size());
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
            add(error, shard.name);
        }
        all[number] = std::exchange(findings_, {});
        done_ += shard.bytes;
        tell(shard.name, 0);
    }
    return all;
}

void Verification::verify_shard(std::size_t number) {
    const Shard& shard = manifest_.shards[number];
    const fs::path path = path_beneath(folder_, shard.name);
    const std::uint64_t bytes = open_for_reading(path) ? fs::file_size(path) : 0;
    if (bytes != shard.bytes)
        add({.code = bytes < shard.bytes ? "E204" : "E213",
             .file = shard.name,
             .field = {},
             .offset = std::min(bytes, shard.bytes),
             .bytes = std::max(bytes, shard.bytes) - std::min(bytes, shard.bytes),
             .text = fmt::format("'{}' has {} bytes; {} were written",
                                 path.string(),
                                 grouped(bytes),
                                 grouped(shard.bytes))});
    ShardView view{manifest_, number, path, indexes_of(number, path)};
    verify_content(view);
}

void Verification::verify_content(ShardView& view) {
    const Shard& shard = manifest_.shards[view.number];
    ShardPass pass = pass_over(
        view, threads_, [&](std::uint64_t done) { tell(shard.name, std::min(done, shard.bytes)); });
    std::ranges::move(pass.findings, std::back_inserter(findings_));
    if (pass.xxh3_128 == shard.xxh3_128) return verify_structure(view);
    if (findings_.empty())
        add({.code = "E213",
             .file = shard.name,
             .field = {},
             .text = fmt::format("'{}' is damaged outside of its blocks, where HDF5 keeps its own "
                                 "structures: its XXH3-128 is {}, the manifest says {}",
                                 view.path.string(),
                                 pass.xxh3_128,
                                 shard.xxh3_128)});
}

std::vector<std::vector<StoredBlock>> Verification::indexes_of(std::size_t number,
                                                               const fs::path& path) {
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
                 .text = fmt::format("'{}' is damaged: the index of field '{}', {} bytes at offset "
                                     "{}, does not match its hash or names impossible blocks",
                                     path.string(),
                                     manifest_.fields[f].name,
                                     grouped(place.blocks * index_row_bytes),
                                     grouped(place.offset))});
        all.push_back(blocks.value_or(std::vector<StoredBlock>{}));
    }
    return all;
}

// Only for files whose every byte is right: what libhdf5 sees is what the index says. Whoever made
// the file may have made the manifest too, so a child looks.
void Verification::verify_structure(const ShardView& shard) {
    const std::vector<ProbedField> probed =
        probe_untrusted_shard(sandbox_, shard.path, manifest_, shard.number).fields;
    for (std::size_t f = 0; f < shard.blocks.size(); ++f) {
        const bool agrees = std::ranges::equal(
            probed[f].blocks,
            shard.blocks[f],
            [](const StoredBlock& seen, const StoredBlock& said) {
                return seen.offset == said.offset && seen.stored_bytes == said.stored_bytes &&
                       seen.rows == said.rows && seen.codec == said.codec;
            });
        if (!agrees)
            add({.code = "E208",
                 .file = manifest_.shards[shard.number].name,
                 .field = manifest_.fields[f].name,
                 .text = fmt::format("'{}': HDF5 sees other blocks of field '{}' than the index",
                                     shard.path.string(),
                                     manifest_.fields[f].name)});
    }
}

}  // namespace

std::vector<Finding> verify_dataset(const std::filesystem::path& folder,
                                    const VerifyReport& report,
                                    const VerifyOptions& options) {
    const Team& team = options.team;
    const std::string text = by_root(team, [&] { return read_manifest_text(folder); });
    const std::string file(manifest_name);
    Manifest manifest;
    try {
        manifest = parse_manifest(text, (folder / file).string());
    } catch (const Error& error) {
        return {{.code = error.code(), .file = file, .field = {}, .text = sentence(error)}};
    }
    return merged(team, together(team, [&] {
                      return Verification(folder, manifest, report, options).run();
                  }));
}

}  // namespace lockstep
