// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/data/ledger.hpp"

#include "ledger_record.hpp"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {
namespace {

// Written at once when so much has come together.
constexpr std::size_t write_bytes = 256u << 10;

UniqueFd create(const fs::path& path) {
    UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600));
    if (!file) throw system_error("create", path.string(), errno);
    return file;
}

}  // namespace

fs::path ledger_path(const fs::path& folder, const LedgerHead& head) {
    return folder / fmt::format("rank-{:05}.{}.ledger", head.rank, head.incarnation);
}

LedgerWriter::LedgerWriter(const fs::path& folder, const LedgerHead& head)
    : path_(ledger_path(folder, head)) {
    make_own_folder(folder);
    file_ = create(path_);
    pending_ = encode_head(head);
    chain_ = hash64(pending_);
    flush();
    sync_path(folder);
}

void LedgerWriter::add(const Batch& batch) {
    const auto masked = std::ranges::count(batch.valid, std::uint8_t{0});
    append_record(pending_,
                  {batch.position,
                   static_cast<std::uint64_t>(batch.samples_in_step),
                   static_cast<std::uint64_t>(masked)},
                  batch.sample_ids,
                  chain_);
    if (pending_.size() >= write_bytes) write_pending();
}

void LedgerWriter::write_pending() {
    write_all(file_.value(), pending_, path_);
    pending_.clear();
}

void LedgerWriter::flush() {
    write_pending();
    if (::fdatasync(file_.value()) != 0) throw system_error("write", path_.string(), errno);
}

}  // namespace lockstep
