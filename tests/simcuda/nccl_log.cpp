// SPDX-License-Identifier: Apache-2.0
#include "simcuda/nccl_log.hpp"

#include "lockstep/core/host_name.hpp"

#include "simcuda/machine.hpp"

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>

#include <fmt/format.h>
#include <unistd.h>

namespace simcuda {
namespace {

std::string variable(const char* name) {
    const char* const text = std::getenv(name);
    return text == nullptr ? "" : text;
}

void replace(std::string& text, const std::string& word, const std::string& by) {
    for (auto at = text.find(word); at != text.npos; at = text.find(word, at + by.size()))
        text.replace(at, word.size(), by);
}

/// As NCCL does at its first line: null where nothing is asked for.
std::FILE* open_log() {
    const std::string systems = variable("NCCL_DEBUG_SUBSYS");
    if (variable("NCCL_DEBUG") != "INFO") return nullptr;
    if (!systems.empty() && systems.find("INIT") == systems.npos && systems != "ALL")
        return nullptr;
    std::string file = variable("NCCL_DEBUG_FILE");
    replace(file, "%h", lockstep::host_name());
    replace(file, "%p", std::to_string(::getpid()));
    replace(file, "%%", "%");
    std::FILE* const opened = file.empty() ? nullptr : std::fopen(file.c_str(), "w");
    return opened == nullptr ? stdout : opened;
}

void say(const std::string& message) {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    static std::FILE* const file = open_log();
    if (file == nullptr) return;
    fmt::print(file,
               "{}:{}:{} [{}] NCCL INFO {}\n",
               lockstep::host_name(),
               ::getpid(),
               ::gettid(),
               Machine::device(),
               message);
    std::fflush(file);
}

}  // namespace

void NcclLog::begin(MPI_Comm ranks) {
    MPI_Comm machine = MPI_COMM_NULL;
    MPI_Comm_split_type(ranks, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
    const std::size_t named = std::hash<std::string>()(variable("NCCL_HOSTID"));
    MPI_Comm_split(machine, static_cast<int>(named & 0x7fffffff), 0, &host_);
    MPI_Comm_free(&machine);
    MPI_Comm_rank(ranks, &rank_);
    MPI_Comm_size(ranks, &size_);
    ranks_ = ranks;
    say("NCCL version 2.28.9+cuda13.0");
    say("NET/IB : No device found.");
    say("NET/Socket : Using [0]lo:127.0.0.1<0>");
}

void NcclLog::connect(const NcclOperation& operation) {
    if (operation.kind == NcclKind::receive || size_ == 1) return;
    send_to(operation.kind == NcclKind::send ? operation.root : (rank_ + 1) % size_);
}

void NcclLog::send_to(int peer) {
    if (peer == rank_ || !connected_.insert(peer).second) return;
    if (is_on_this_host(peer))
        say(fmt::format("Channel 00 : {0}[{0}] -> {1}[{1}] via SHM/direct/direct", rank_, peer));
    else
        say(fmt::format(
            "Channel 00/0 : {0}[{0}] -> {1}[{1}] [send] via NET/Socket/0", rank_, peer));
}

bool NcclLog::is_on_this_host(int peer) const {
    MPI_Group all = MPI_GROUP_NULL, here = MPI_GROUP_NULL;
    MPI_Comm_group(ranks_, &all);
    MPI_Comm_group(host_, &here);
    int found = MPI_UNDEFINED;
    MPI_Group_translate_ranks(all, 1, &peer, here, &found);
    MPI_Group_free(&all);
    MPI_Group_free(&here);
    return found != MPI_UNDEFINED;
}

}  // namespace simcuda
