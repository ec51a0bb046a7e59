// SPDX-License-Identifier: Apache-2.0
// Foreign files have no hashes. These checks are possible: every block can be read, expands to the
// right size, fits its checksums if it has some, and holds labels that are classes.
#include "lockstep/core/error.hpp"
#include "lockstep/core/error_kind.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/data/verify.hpp"

#include "block_check.hpp"
#include "findings.hpp"
#include "stream/bad_blocks.hpp"
#include "stream/block_reader.hpp"
#include "stream/resident_load.hpp"
#include "team/ordered_work.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

namespace lockstep {
namespace {

// Checks one member's blocks on several threads.
class ForeignBlocks {
  public:
    ForeignBlocks(std::shared_ptr<const DatasetIndex> index,
                  const VerifyReport& report,
                  const VerifyOptions& options)
        : index_(std::move(index)),
          report_(report),
          threads_(static_cast<std::size_t>(worker_count(options.threads))),
          members_(static_cast<std::uint64_t>(options.team.size)),
          files_(index_),
          blocks_(blocks_of_part(*index_, options.team.rank, options.team.size)) {
        for (const FieldBlock& block : blocks_) total_ += block.bytes;
    }

    std::vector<Finding> run() {
        {
            std::vector<std::jthread> helpers;
            for (std::size_t i = 1; i < threads_; ++i)
                helpers.emplace_back([this] { work([] {}); });
            work([this] { tell(); });
        }
        if (failure_) std::rethrow_exception(failure_);
        std::ranges::sort(found_, {}, &std::pair<std::size_t, Finding>::first);
        std::vector<Finding> findings;
        for (auto& [place, finding] : found_) findings.push_back(std::move(finding));
        return findings;
    }

  private:
    // Until no block is left, or a thread fails.
    template <class Told>
    void work(Told told) {
        try {
            BlockReader reader(files_);
            for (std::size_t i = next_++; i < blocks_.size(); i = next_++) {
                look(reader, i);
                done_ += blocks_[i].bytes;
                told();
            }
        } catch (...) {
            const std::scoped_lock lock(mutex_);
            if (!failure_) failure_ = std::current_exception();
            next_ = blocks_.size();
        }
    }

    void look(BlockReader& reader, std::size_t place) {
        const auto [field, number, bytes] = blocks_[place];
        if (index_->stored_blocks(field)[number].shard == kept_in_index) return;
        try {
            reader.read_block(field, number);
        } catch (const Error& error) {
            const bool is_missing = kind_of(error) == ErrorKind::value_missing;
            if (!is_about_data(error) && !is_missing && error.code() != "E210") throw;
            const std::scoped_lock lock(mutex_);
            found_.emplace_back(place, finding(field, number, error));
        }
    }

    Finding finding(std::size_t field, std::size_t number, const Error& error) const {
        const auto& blocks = index_->stored_blocks(field);
        return {.code = error.code(),
                .file = index_->shards()[blocks[number].shard].name,
                .field = index_->fields()[field].name,
                .block = static_cast<std::int64_t>(number_in_shard(blocks, number)),
                .offset = blocks[number].offset,
                .bytes = blocks[number].stored_bytes,
                .text = sentence(error)};
    }

    void tell() const {
        if (report_) report_({done_ * members_, total_ * members_, index_->name()});
    }

    std::shared_ptr<const DatasetIndex> index_;
    const VerifyReport& report_;
    std::size_t threads_;
    std::uint64_t members_;
    ShardFiles files_;
    std::vector<FieldBlock> blocks_;
    std::uint64_t total_ = 0;
    std::atomic<std::uint64_t> done_ = 0;
    std::atomic<std::size_t> next_ = 0;

    std::mutex mutex_;
    std::vector<std::pair<std::size_t, Finding>> found_;
    std::exception_ptr failure_;
};

}  // namespace

std::vector<Finding> verify_data(const std::filesystem::path& where,
                                 const std::vector<FieldMapping>& fields,
                                 const VerifyReport& report,
                                 const VerifyOptions& options) {
    if (fields.empty()) return verify_dataset(where, report, options);
    const std::string bytes = by_root(options.team, [&] {
        const auto opened = DatasetIndex::open(where, fields).serialize();
        return std::string(reinterpret_cast<const char*>(opened.data()), opened.size());
    });
    auto index = std::make_shared<const DatasetIndex>(DatasetIndex::deserialize(bytes_of(bytes)));
    return merged(
        options.team,
        {together(options.team, [&] { return ForeignBlocks(index, report, options).run(); })});
}

}  // namespace lockstep
