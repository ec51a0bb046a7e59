// SPDX-License-Identifier: Apache-2.0
// Each node needs all shards, and each byte should be read once from the shared file system. So
// pieces have owners, and are broadcast in one order that all nodes know:
//
//     piece     0     1     2     3    ...
//     owner     n0    n1    n2    n0            reads ahead what it owns (two threads)
//     all       broadcast 0, store | broadcast 1, store | ...
//
// What must never happen: a node leaves the round. A broadcast without one of them never ends, so
// no node throws while pieces are left. A node that fails (a read, a full disk, an interrupt)
// continues to take part and stores no more. When it is its turn to send, its message is the error,
// and all nodes throw at the same piece. Hence a message begins with a letter, and an error travels
// as text.
//
// Tested: data/pack/stage_test.cpp (several nodes and columns, errors and interrupts on any of
// them).

#include "piece_mover.hpp"

#include "lockstep/core/files.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/record.hpp"

#include "stream/ordered_work.hpp"
#include "stream/request_plan.hpp"

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr int readers_ahead = 2;
constexpr char good = 'g', bad = 'b';

// A message is a piece, or why there is none.
std::string failure_message(const Error& error) {
    return bad + error_bytes(error);
}

void throw_if_bad(const std::string& message) {
    if (!message.empty() && message[0] == good) return;
    throw error_from_bytes(std::string_view(message).substr(message.empty() ? 0 : 1));
}

std::string read_piece(const fs::path& path, const StagePiece& piece) {
    const UniqueFd fd = open_for_reading(path);
    std::string message(1 + piece.bytes, good);
    const auto out = std::as_writable_bytes(std::span(message)).subspan(1);
    const std::size_t got = read_at(fd.value(), out, piece.offset, path);
    check(got == out.size(), [&] {
        return Error(
            "E204",
            fmt::format(
                "'{}' is cut short: it has {} bytes", path.string(), grouped(piece.offset + got)),
            "its manifest says that there are more",
            "copy it again from its source, then run 'lockstep data verify'");
    });
    return message;
}

// Writes into files that are there. One thread.
class PartWriter {
  public:
    void write(const fs::path& part, std::uint64_t offset, std::string_view bytes) {
        UniqueFd& fd = files_[part];
        if (!fd) allow_open_files(files_.size());
        if (!fd) fd = UniqueFd(::open(part.c_str(), O_WRONLY | O_CLOEXEC));
        if (!fd) throw system_error("write", part, errno);
        if (const int reason = try_write_at(fd.value(), std::as_bytes(std::span(bytes)), offset))
            throw system_error("write", part, reason);
    }

  private:
    std::map<fs::path, UniqueFd> files_;
};

}  // namespace

fs::path part_of(const fs::path& path) {
    return path.string() + ".part";
}

std::uint64_t move_pieces(const StageOptions& options,
                          const Manifest& manifest,
                          const fs::path& folder,
                          const std::vector<std::size_t>& missing,
                          const std::vector<StagePiece>& pieces,
                          const StageReport& report) {
    const StageTeam& team = options.team;
    std::uint64_t read = 0, done = 0, total = 0;
    for (const StagePiece& piece : pieces) total += piece.bytes;
    const auto fetch = [&](std::uint64_t at, std::string& message) {
        const StagePiece& piece = pieces[at];
        message.clear();
        if (piece.owner != team.node_number) return;
        try {
            message =
                read_piece(path_beneath(options.source, manifest.shards[piece.shard].name), piece);
        } catch (const Error& error) {
            message = failure_message(error);
        }
    };
    std::vector<std::decay_t<decltype(fetch)>> readers(readers_ahead, fetch);
    std::vector<std::string> slots(4 * readers_ahead);
    PartWriter writer;
    std::optional<Error> failure;
    const auto store = [&](const StagePiece& piece, const std::string& message) {
        if (std::ranges::binary_search(missing, piece.shard))
            writer.write(part_of(folder / manifest.shards[piece.shard].name),
                         piece.offset,
                         std::string_view(message).substr(1));
        const auto columns = static_cast<std::uint64_t>(team.columns);
        if (report) report(done * columns, total * columns);
    };
    const auto pass_on = [&](std::uint64_t at, std::string& message) {
        const StagePiece& piece = pieces[at];
        if (piece.owner == team.node_number) {
            read += piece.bytes;
            if (failure) message = failure_message(*failure);
        }
        if (team.nodes > 1) message = team.broadcast(std::move(message), piece.owner);
        throw_if_bad(message);
        done += piece.bytes;
        if (failure) return;
        try {
            store(piece, message);
        } catch (const std::exception& error) {
            failure = as_error(error);
        }
    };
    work_in_order(pieces.size(), readers, slots, pass_on);
    if (failure) throw *failure;
    return read;
}

std::vector<std::vector<std::size_t>> stage_rounds(const Manifest& manifest,
                                                   const std::vector<std::size_t>& shards,
                                                   std::uint64_t bytes) {
    std::vector<std::vector<std::size_t>> rounds;
    std::uint64_t filled = bytes;
    for (const std::size_t shard : shards) {
        if (filled >= bytes) {
            rounds.emplace_back();
            filled = 0;
        }
        rounds.back().push_back(shard);
        filled += manifest.shards[shard].bytes;
    }
    return rounds;
}

std::vector<StagePiece> pieces_of_column(const Manifest& manifest,
                                         const std::vector<std::size_t>& shards,
                                         std::uint64_t piece_bytes,
                                         int column,
                                         int columns,
                                         int nodes) {
    std::vector<StagePiece> pieces;
    std::uint64_t number = 0;
    const auto width = static_cast<std::uint64_t>(columns);
    for (const std::size_t shard : shards) {
        const std::uint64_t size = manifest.shards[shard].bytes;
        for (std::uint64_t offset = 0; offset < size; offset += piece_bytes, ++number) {
            if (number % width != static_cast<std::uint64_t>(column)) continue;
            const auto owner = static_cast<int>(number / width % static_cast<std::uint64_t>(nodes));
            pieces.push_back({shard, offset, std::min(piece_bytes, size - offset), owner});
        }
    }
    return pieces;
}

}  // namespace lockstep
