// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/train/checkpoint.hpp"

#include "drill/faults.hpp"
#include "drill/own_mounts.hpp"
#include "train/short_training.hpp"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {
namespace {

constexpr std::uint64_t disk_bytes = 128u << 20, shm_bytes = 1u << 20;

/// Takes all that is left of a file system, also where others take and give meanwhile.
void fill(const fs::path& file) {
    const UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    if (!fd) throw system_error("create", file, errno);
    constexpr std::uint64_t page_bytes = 4096;
    std::uint64_t size = 0, part = free_bytes(file.parent_path());
    while (part >= page_bytes) {
        if (::posix_fallocate(fd.value(), static_cast<off_t>(size), static_cast<off_t>(part)) == 0)
            size += part;
        else
            part /= 2;
        part = std::min(part, free_bytes(file.parent_path()));
    }
}

/// What the training said, as it may have had no room to log it.
Expectation expect_said(const Struck& struck, const std::string& words) {
    const bool is_said = struck.output.find(words) != std::string::npos;
    return {"its message", words, is_said ? words : "it does not say so", is_said};
}

FaultReport fill_own_disk(DrillBed& bed) {
    const fs::path disk = bed.run("disk");
    fs::create_directory(disk);
    mount_small(disk, disk_bytes);
    Attack attack{.name = "disk/run", .data = bed.data()};
    attack.strike = [&](const LiveRun&) {
        fill(disk / "filler");
        return fmt::format("a file system of {} was filled while the training wrote to it",
                           bytes_text(disk_bytes));
    };
    const Struck struck = bed.train(attack);
    FaultReport report{.done = struck.done};
    const bool is_seen_early = struck.output.find("error E403") != std::string::npos;
    report.expectations = {expect_exit(73, struck),
                           expect_said(struck, is_seen_early ? "error E403" : "error E405"),
                           bed.expect_nothing_left(attack)};
    fs::remove(disk / "filler");
    report.expectations.push_back(bed.expect_same_parameters(attack));
    return report;
}

FaultReport fill_own_shm(DrillBed& bed) {
    mount_small("/dev/shm", shm_bytes);
    const Attack attack{.name = "full-shm", .data = bed.data()};
    Expectation same = bed.expect_same_parameters(attack);
    same.what = "training all the same";
    FaultReport report{
        .done = fmt::format("a training in whose /dev/shm there are {}", bytes_text(shm_bytes))};
    report.expectations = {same, bed.expect_nothing_left(attack)};
    return report;
}

/// In a child, whose parent shows how far it is.
FaultReport rehearse_apart(DrillBed& bed, const char* name, FaultReport (*rehearse)(DrillBed&)) {
    const auto work = [&] {
        DrillBed apart(bed.settings(), [](const std::string&) { give_up_if_asked("the drill"); });
        return rehearse(apart);
    };
    return with_own_mounts(work, [&] { bed.look(name); });
}

}  // namespace

FaultReport fill_disk(DrillBed& bed) {
    return rehearse_apart(bed, "full-disk", fill_own_disk);
}

FaultReport fill_shm(DrillBed& bed) {
    return rehearse_apart(bed, "full-shm", fill_own_shm);
}

}  // namespace lockstep
