// SPDX-License-Identifier: Apache-2.0
// A pack writes for hours and may be killed at any moment. Its finished work must not be lost, and
// its unfinished folder must not look like a data set:
//
//     .NAME.partial/   plan (identity, fields with their statistics)
//                      shard 0, its record | shard 1, its record | shard 2, no record yet
//     commit           records removed, folder renamed to NAME
//
// A shard counts as finished by its record, which is written after it, and only if its bytes still
// have the hash that the record names.
//
// What must never happen:
// - Shards of two packs in one data set: input and options have an identity, and another one's
//   finished shards are refused (E240) or, if asked, removed.
// - Two packs in one folder: rank 0 holds its lock (Workspace).
// - Members that do not see the same folder: each looks for what rank 0 wrote before it writes
//   anything.
//
// Tested: data/pack/pack_team_test.cpp (killed at any moment, other ranks and threads, damaged
// leftovers), pack_test.cpp.

#include "pack_space.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/numbers.hpp"

#include "format/manifest_fields.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

namespace lockstep {
namespace {

constexpr std::string_view plan_name = "pack.json", done_suffix = ".done";

void write_sealed(const fs::path& path, const Json& json) {
    std::string text = json.dump(2);
    text.resize(text.rfind("\n}"));
    write_file_atomically(path, sealed(std::move(text)));
}

// Returns nothing if the file is missing or not as it was written.
std::optional<Json> read_sealed(const fs::path& path) {
    try {
        const std::string text = read_file(path);
        const auto cut = text.rfind(",\n  \"digest\"");
        if (cut == text.npos || sealed(text.substr(0, cut)) != text) return {};
        return parse_json(text, path.string());
    } catch (const Error&) {
        return {};
    }
}

std::vector<fs::path> files_in(const fs::path& folder) {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
    return files;
}

fs::path record_of(const fs::path& shard) {
    return fmt::format("{}{}", shard.string(), done_suffix);
}

// All that decides the result's bytes, and the fields with their statistics.
struct PackPlan {
    Json identity;
    std::vector<Field> fields;
};

void describe(Record& record, PackPlan& plan) {
    LOCKSTEP_EACH(record.field, plan.identity, plan.fields);
}

// Returns nothing if there is no valid record.
std::optional<PackPlan> plan_in(const fs::path& folder) {
    const auto json = read_sealed(folder / plan_name);
    if (!json) return {};
    return record_from_json<PackPlan>(*json, std::string(plan_name));
}

void write_plan_in(const fs::path& folder, const PackPlan& plan) {
    write_sealed(folder / plan_name, json_of_record(plan));
}

std::vector<fs::path> finished_in(const fs::path& folder) {
    std::vector<fs::path> records = files_in(folder);
    std::erase_if(records, [](const fs::path& path) { return path.extension() != done_suffix; });
    return records;
}

// Every file that is neither a record nor has one.
void remove_unfinished_in(const fs::path& folder) {
    for (const fs::path& path : files_in(folder))
        if (path.filename() != plan_name && path.extension() != done_suffix &&
            !fs::exists(record_of(path)))
            fs::remove_all(path);
}

// The differences of `now` from `before`: "codec lz4, now zstd; input ..., now ...".
std::string differences(const Json& before, const Json& now) {
    std::vector<std::string> texts;
    for (const auto& [key, value] : now.items())
        if (!before.contains(key) || before.at(key) != value)
            texts.push_back(fmt::format("{} was {}, now {}",
                                        key,
                                        before.value(key, Json("not known")).dump(),
                                        value.dump()));
    return fmt::format("{}", fmt::join(texts, "; "));
}

// "NAME/" and "NAME" are the same folder.
fs::path without_slash(const fs::path& path) {
    const fs::path clean = fs::absolute(path).lexically_normal();
    return clean.has_filename() ? clean : clean.parent_path();
}

bool is_same_folder(int fd, const fs::path& path) {
    struct stat held {
    }, named{};
    return ::fstat(fd, &held) == 0 && ::stat(path.c_str(), &named) == 0 &&
           held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

Error cannot_create(const fs::path& path, int reason) {
    return Error("E401",
                 fmt::format("cannot create '{}': {}", path.string(), std::strerror(reason)),
                 "",
                 "use a folder that you may write to");
}

}  // namespace

PackSpace::PackSpace(const PackOptions& options, Json identity)
    : team_(options.team), identity_(std::move(identity)) {
    folder_ = by_root(team_, [&] { return look_at_leftovers(options); });
    together(team_, [&] {
        const auto plan = plan_in(folder_);
        check(plan && plan->identity == identity_,
              "E241",
              fmt::format(
                  "rank {} does not see what rank 0 wrote to '{}'", team_.rank, folder_.string()),
              "the folder is not on a file system that all nodes share",
              "give an output on a shared file system, or use the ranks of one node");
        if (!plan->fields.empty()) known_fields_ = plan->fields;
    });
}

std::string PackSpace::look_at_leftovers(const PackOptions& options) {
    const fs::path& path = workspace_.emplace(options.output).path();
    const auto left = plan_in(path);
    const bool is_same = left && left->identity == identity_;
    if (is_same && options.leftovers == Leftovers::resume) {
        remove_unfinished_in(path);
        return path;
    }
    if (left && options.leftovers == Leftovers::resume && !finished_in(path).empty()) {
        workspace_->keep();
        throw Error("E240",
                    fmt::format("'{}' has {} finished shards of another pack",
                                path.string(),
                                finished_in(path).size()),
                    differences(left->identity, identity_),
                    "give the same input and options to continue it, or --restart to begin again");
    }
    workspace_->clear();
    write_plan_in(path, {identity_, {}});
    return path;
}

PackSpace::~PackSpace() {
    if (!workspace_) return;
    try {
        remove_unfinished_in(folder_);
        if (!finished_in(folder_).empty()) workspace_->keep();
    } catch (const std::exception&) {
        workspace_->keep();
    }
}

void PackSpace::write_plan(const std::vector<Field>& fields) {
    fields_ = fields;
    together(team_, [&] {
        if (team_.is_root() && !known_fields_) write_plan_in(folder_, {identity_, fields});
    });
}

std::vector<std::optional<Shard>> PackSpace::finished_shards(const Manifest& manifest,
                                                             const PackReport& report) const {
    std::vector<std::optional<Shard>> found(manifest.shards.size());
    const auto size = static_cast<std::size_t>(team_.size);
    const std::string mine = together(team_, [&] {
        Json list = Json::array();
        for (auto i = static_cast<std::size_t>(team_.rank); i < found.size(); i += size) {
            const std::string& name = manifest.shards[i].name;
            const auto shard = finished(name);
            if (shard && report) report({"resume", i + 1, found.size()});
            if (shard && file_digest(folder_ / name) == shard->xxh3_128) {
                list.push_back({i, json_of_record(*shard)});
                continue;
            }
            fs::remove(record_of(folder_ / name));
            fs::remove(folder_ / name);
        }
        return list.dump();
    });
    for (const std::string& one : gather(team_, mine))
        for (const Json& entry : parse_json(one, "another rank's shards"))
            found[entry.at(0).get<std::size_t>()] =
                shard_from_json(entry.at(1), fields_, "another rank's shards");
    return found;
}

// The entry of the shard called `name`, if its record is valid and the file has its size.
std::optional<Shard> PackSpace::finished(const std::string& name) const {
    const auto json = read_sealed(record_of(folder_ / name));
    if (!json) return {};
    Shard shard = shard_from_json(json->at("shard"), fields_, name);
    std::error_code missing;
    const std::uint64_t bytes = fs::file_size(folder_ / name, missing);
    if (missing || bytes != shard.bytes || shard.name != name) return {};
    return shard;
}

std::string PackSpace::write_finished(const Shard& shard) const {
    const Json entry = json_of_record(shard);
    write_sealed(record_of(folder_ / shard.name), {{"shard", entry}});
    return entry.dump();
}

Shard PackSpace::shard_of(const std::string& record) const {
    return shard_from_json(parse_json(record, "another rank's shard"), fields_, "a shard's record");
}

// Data sets are for sharing: what the umask allows the shards, it allows the manifest.
void PackSpace::write_manifest(const Manifest& manifest) const {
    const fs::path path = folder_ / manifest_name;
    write_file_atomically(path, manifest_text(manifest));
    fs::permissions(path, fs::status(folder_ / manifest.shards[0].name).permissions());
}

void PackSpace::commit() {
    together(team_, [&] {
        if (!team_.is_root()) return;
        // The plan goes last: without it the rest means nothing.
        for (const fs::path& record : finished_in(folder_)) fs::remove(record);
        fs::remove(folder_ / plan_name);
        workspace_->commit();
    });
    workspace_.reset();
}

void check_room(const fs::path& folder,
                std::uint64_t needed,
                std::string_view needs,
                const std::string& why,
                const std::string& fix) {
    const std::uint64_t free = free_bytes(folder);
    check(free >= needed,
          "E403",
          fmt::format("'{}' has {} free, {} {}",
                      folder.string(),
                      bytes_text(free),
                      needs,
                      bytes_text(needed)),
          why,
          fix);
}

void check_is_free(const fs::path& target) {
    std::error_code failed;
    check(fs::symlink_status(target, failed).type() == fs::file_type::not_found || failed,
          "E407",
          fmt::format("'{}' exists already", target.string()),
          "a data set is never overwritten",
          "give another name, or remove it first");
}

Workspace::Workspace(const fs::path& target) : target_(without_slash(target)) {
    check_is_free(target_);
    make_directories(target_.parent_path(), FolderAccess::umask);
    path_ = target_.parent_path() / fmt::format(".{}.partial", target_.filename().string());
    enter();
}

void Workspace::clear() {
    try {
        for (const fs::directory_entry& left : fs::directory_iterator(path_))
            fs::remove_all(left.path());
    } catch (const fs::filesystem_error& error) {
        throw cannot_create(path_, error.code().value());
    }
}

// Its owner may rename the folder between our opening and locking it: then look again.
void Workspace::enter() {
    do {
        if (::mkdir(path_.c_str(), 0777) != 0 && errno != EEXIST) throw cannot_create(path_, errno);
        lock_ = UniqueFd(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        if (!lock_ && errno == ENOENT) continue;
        if (!lock_) throw cannot_create(path_, errno);
        const bool is_taken =
            ::flock(lock_.value(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
        check(!is_taken,
              "E404",
              fmt::format("'{}' is being written by another process", target_.string()),
              fmt::format("it holds the lock of '{}'", path_.string()),
              "wait until it is done, or give another name");
    } while (!lock_ || !is_same_folder(lock_.value(), path_));
}

Workspace::~Workspace() {
    std::error_code ignored;
    if (!is_kept_) fs::remove_all(path_, ignored);
}

void Workspace::commit() {
    sync_path(path_);
    check_is_free(target_);
    if (::rename(path_.c_str(), target_.c_str()) != 0) throw system_error("create", target_, errno);
    is_kept_ = true;
    sync_path(target_.parent_path());
}

}  // namespace lockstep
