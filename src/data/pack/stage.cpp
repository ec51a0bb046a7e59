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

#include "lockstep/core/error.hpp"
#include "lockstep/core/error_kind.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/record.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/data/pack.hpp"

#include "pack_space.hpp"
#include "stream/ordered_work.hpp"
#include "stream/request_plan.hpp"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <map>
#include <optional>
#include <set>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {
namespace {

// What a staged copy says of itself.
struct Marker {
    std::string source, digest;
};

void describe(Record& record, Marker& marker) {
    LOCKSTEP_EACH(record.field, marker.source, marker.digest);
}

// Nothing if it is none.
std::optional<Marker> marker_of(const fs::path& target) {
    const fs::path path = target / staged_marker;
    if (!fs::is_regular_file(status_of(path))) return {};
    return record_from_json<Marker>(read_json(path), path.string());
}

constexpr int readers_ahead = 2;
constexpr char good = 'g', bad = 'b';

// A message is a piece, or why there is none.
std::string failure_message(const Error& error) {
    return bad + error_bytes(error);
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

// The name of an incomplete file.
fs::path part_of(const fs::path& path) {
    return path.string() + ".part";
}

// Writes into a file that is there, and stays open among `files`.
void write_part(std::map<fs::path, UniqueFd>& files,
                const fs::path& part,
                std::uint64_t offset,
                std::string_view bytes) {
    UniqueFd& fd = files[part];
    if (!fd) allow_open_files(files.size());
    if (!fd) fd = UniqueFd(::open(part.c_str(), O_WRONLY | O_CLOEXEC));
    if (!fd) throw system_error("write", part, errno);
    if (const int reason = try_write_at(fd.value(), std::as_bytes(std::span(bytes)), offset))
        throw system_error("write", part, reason);
}

// Numbers that somebody has, ascending.
std::vector<std::size_t> union_of(const std::vector<std::string>& lists) {
    std::set<std::size_t> all;
    for (const std::string& list : lists)
        for (const Json& number : parse_json(list, "another rank"))
            all.insert(number.get<std::size_t>());
    return {all.begin(), all.end()};
}

// One process's part in staging.
class Staging {
  public:
    Staging(const StageOptions& options, const StageReport& report)
        : options_(options), report_(report), team_(options.team) {}

    StageResult run() {
        const std::string file = (options_.source / manifest_name).string();
        manifest_text_ = by_root(team_.all, [&] { return read_manifest_text(options_.source); });
        manifest_ = together(team_.all, [&] { return parse_manifest(manifest_text_, file); });
        const std::string entered = together(team_.all, [&] { return leads() ? enter() : ""; });
        const Json place =
            parse_json(gather(team_.node, entered)[0], "the first rank of this node");
        folder_ = place.at("folder").get<std::string>();
        is_new_ = place.at("is_new").get<bool>();
        missing_ =
            union_of(gather(team_.node, together(team_.all, [&] { return look_at_mine(); })));
        wanted_ = union_of(gather(team_.all, Json(missing_).dump()));
        together(team_.all, [&] { check_room(); });
        together(team_.all, [&] { make_files(); });
        bring();
        together(team_.all, [&] { commit(); });
        for (const Shard& shard : manifest_.shards) result_.dataset_bytes += shard.bytes;
        result_.sent_bytes = bytes_of(wanted_);
        return result_;
    }

    /// After E242: whole shards of a new copy stay for a successor.
    void keep_whole_files() {
        if (!workspace_ || folder_.empty()) return;
        remove_leftovers();
        const bool has_some = std::ranges::any_of(
            manifest_.shards, [&](const Shard& shard) { return fs::exists(folder_ / shard.name); });
        if (has_some) workspace_->keep();
    }

  private:
    bool leads() const { return team_.node.is_root(); }
    // Where this node's files go, and whether that is a new copy.
    std::string enter() {
        const fs::path& target = options_.target;
        if (!fs::exists(fs::symlink_status(target))) {
            workspace_.emplace(target);
            check(!fs::exists(workspace_->path() / "pack.json"), [&] {
                workspace_->keep();
                return Error(
                    "E240",
                    fmt::format("'{}' has an unfinished pack", workspace_->path().string()),
                    "",
                    "let 'lockstep data pack' finish it, or give another folder");
            });
            return Json{{"folder", workspace_->path().string()}, {"is_new", true}}.dump();
        }
        const auto marker = marker_of(target);
        check(marker.has_value(),
              "E407",
              fmt::format("'{}' exists already", target.string()),
              "it is not a copy that 'lockstep data stage' made",
              "give another folder, or remove it first");
        check(marker->digest == manifest_.digest,
              "E243",
              fmt::format("'{}' is a copy of another data set", target.string()),
              fmt::format("its digest is {}, that of '{}' is {}",
                          marker->digest,
                          options_.source.string(),
                          manifest_.digest),
              fmt::format("remove it: lockstep data stage {} --unstage; or give another folder",
                          shell_word(target.string())));
        return Json{{"folder", fs::absolute(target).string()}, {"is_new", false}}.dump();
    }

    // The processes of a node share the look at its files.
    std::string look_at_mine() const {
        Json missing = Json::array();
        const auto size = static_cast<std::size_t>(team_.node.size);
        for (auto i = static_cast<std::size_t>(team_.node.rank); i < manifest_.shards.size();
             i += size)
            if (!is_whole(i)) missing.push_back(i);
        return missing.dump();
    }

    bool is_whole(std::size_t number) const {
        const Shard& shard = manifest_.shards[number];
        const fs::path path = path_beneath(folder_, shard.name);
        std::error_code missing;
        if (fs::file_size(path, missing) != shard.bytes || missing) return false;
        const bool reads = is_new_ || options_.trust == StageTrust::hashes;
        return !reads || file_digest(path) == shard.xxh3_128;
    }

    void check_room() const {
        if (!leads()) return;
        lockstep::check_room(folder_,
                             bytes_of(missing_),
                             "the copy needs",
                             "",
                             "use a larger local disk, or read from the shared file system");
    }

    void make_files() const {
        if (!leads()) return;
        remove_leftovers();
        for (const std::size_t number : missing_) {
            const Shard& shard = manifest_.shards[number];
            const fs::path part = part_of(folder_ / shard.name);
            const UniqueFd fd(::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
            if (!fd || ::ftruncate(fd.value(), static_cast<off_t>(shard.bytes)) != 0)
                throw system_error("create", part, errno);
        }
    }

    // Parts, and in a new copy whatever is no shard: another data set may have been on its way
    // here.
    void remove_leftovers() const {
        std::set<std::string> names;
        for (const Shard& shard : manifest_.shards) {
            names.insert(shard.name);
            fs::remove(part_of(folder_ / shard.name));
        }
        if (!is_new_) return;
        for (const auto& entry : fs::directory_iterator(folder_))
            if (!names.contains(entry.path().filename())) fs::remove_all(entry.path());
    }

    void bring() {
        for (const auto& shards : stage_rounds(manifest_, wanted_, options_.round_bytes)) {
            together(team_.all, [&] { exchange(shards); });
            together(team_.all, [&] { finish_files(shards); });
            brought_bytes_ += bytes_of(shards);
        }
    }

    // Reads what this node owns, as a message; "" for others to send.
    std::string own_message(const StagePiece& piece) const {
        if (piece.owner != team_.node_number) return "";
        try {
            return read_piece(path_beneath(options_.source, manifest_.shards[piece.shard].name),
                              piece);
        } catch (const Error& error) {
            return failure_message(error);
        }
    }

    // Collective over a column, of which this is one process. A failure here (reading, writing,
    // the report) ends the column when it is this node's turn to send: the others throw the same
    // error.
    void exchange(const std::vector<std::size_t>& shards) {
        if (team_.node.rank >= team_.columns) return;
        const auto pieces = pieces_of_column(
            manifest_, shards, options_.piece_bytes, team_.node.rank, team_.columns, team_.nodes);
        const auto read_ahead = [&](std::uint64_t at, std::string& message) {
            message = own_message(pieces[at]);
        };
        std::vector<std::decay_t<decltype(read_ahead)>> readers(readers_ahead, read_ahead);
        std::map<fs::path, UniqueFd> files;
        std::optional<Error> failure;
        std::uint64_t done = 0, total = 0;
        for (const StagePiece& piece : pieces) total += piece.bytes;
        const auto store = [&](const StagePiece& piece, const std::string& message) {
            if (std::ranges::binary_search(missing_, piece.shard))
                write_part(files,
                           part_of(folder_ / manifest_.shards[piece.shard].name),
                           piece.offset,
                           std::string_view(message).substr(1));
            const double part = static_cast<double>(done) / static_cast<double>(total) *
                                static_cast<double>(bytes_of(shards));
            if (report_)
                report_(brought_bytes_ + static_cast<std::uint64_t>(part), bytes_of(wanted_));
        };
        const auto pass_on = [&](std::uint64_t at, std::string& message) {
            const StagePiece& piece = pieces[at];
            if (piece.owner == team_.node_number) {
                result_.read_bytes += piece.bytes;
                if (failure) message = failure_message(*failure);
            }
            if (team_.nodes > 1) message = team_.broadcast(std::move(message), piece.owner);
            if (!message.starts_with(good))
                throw error_from_bytes(std::string_view(message).substr(message.empty() ? 0 : 1));
            done += piece.bytes;
            if (failure) return;
            try {
                store(piece, message);
            } catch (const std::exception& error) {
                failure = as_error(error);
            }
        };
        work_in_order<std::string>(pieces.size(), readers, pass_on, 4);
        if (failure) throw *failure;
    }

    // Compares what arrived with its hash, flushes it, and gives it its name.
    void finish_files(const std::vector<std::size_t>& shards) const {
        std::vector<std::size_t> arrived;
        std::ranges::set_intersection(shards, missing_, std::back_inserter(arrived));
        const auto size = static_cast<std::size_t>(team_.node.size);
        for (auto i = static_cast<std::size_t>(team_.node.rank); i < arrived.size(); i += size) {
            const Shard& shard = manifest_.shards[arrived[i]];
            const fs::path path = folder_ / shard.name, part = part_of(path);
            const std::string hash = file_digest(part);
            if (hash != shard.xxh3_128) {
                fs::remove(part);
                throw Error(
                    "E213",
                    fmt::format("shard '{}' arrived damaged", shard.name),
                    fmt::format("its XXH3-128 is {}, the manifest says {}", hash, shard.xxh3_128),
                    fmt::format("run 'lockstep data verify {}'", options_.source.string()));
            }
            sync_path(part);
            fs::rename(part, path);
        }
    }

    std::uint64_t bytes_of(const std::vector<std::size_t>& shards) const {
        std::uint64_t bytes = 0;
        for (const std::size_t shard : shards) bytes += manifest_.shards[shard].bytes;
        return bytes;
    }

    void commit() {
        if (!leads()) return;
        if (is_new_) {
            write_file_atomically(folder_ / manifest_name, manifest_text_);
            const Marker marker{fs::absolute(options_.source).string(), manifest_.digest};
            write_file_atomically(folder_ / staged_marker, json_of_record(marker).dump(2) + "\n");
            workspace_->commit();
        } else {
            sync_path(folder_);
        }
    }

    const StageOptions& options_;
    const StageReport& report_;
    const StageTeam& team_;
    std::string manifest_text_;
    Manifest manifest_;
    std::optional<Workspace> workspace_;  // of the node's first process, for a new copy
    fs::path folder_;
    bool is_new_ = true;
    std::vector<std::size_t> missing_;  // here
    std::vector<std::size_t> wanted_;   // by some node
    std::uint64_t brought_bytes_ = 0;   // of those, in earlier rounds
    StageResult result_;
};

}  // namespace

StageResult stage_dataset(const StageOptions& options, const StageReport& report) {
    Staging staging(options, report);
    try {
        return staging.run();
    } catch (const Error& error) {
        if (kind_of(error) == ErrorKind::interrupted) staging.keep_whole_files();
        throw;
    }
}

void unstage_dataset(const fs::path& target) {
    check(marker_of(target).has_value(),
          "E243",
          fmt::format("'{}' is not a staged copy", target.string()),
          fmt::format("it has no {}", staged_marker),
          "remove it yourself if you do not need it");
    // What is half removed must not look like a data set.
    fs::remove(target / manifest_name);
    fs::remove_all(target);
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
