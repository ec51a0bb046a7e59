// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/shared_window.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/numbers.hpp"

#include "base/aligned_floats.hpp"
#include "base/mpi_check.hpp"

#include <cstdint>
#include <cstring>
#include <exception>

#include <fmt/format.h>
#include <sys/resource.h>

namespace lockstep {
namespace {

std::byte* at_page_boundary(std::byte* address) {
    const auto number = reinterpret_cast<std::uintptr_t>(address);
    return address + (whole_pages(number) - number);
}

// A limit of addresses explains why Open MPI makes no window; its error does not.
bool has_address_limit() {
    rlimit addresses{};
    ::getrlimit(RLIMIT_AS, &addresses);
    return addresses.rlim_cur != RLIM_INFINITY;
}

}  // namespace

/// A full /dev/shm would end the ranks by SIGBUS at their first write; better to ask before.
void check_shared_room(std::size_t bytes) {
    const std::uint64_t room = free_bytes("/dev/shm");
    check(room >= bytes,
          "E632",
          fmt::format("the ranks of a node need {} of shared memory, /dev/shm has {} free",
                      bytes_text(bytes),
                      bytes_text(room)),
          "they share gradients, parameters and resident data there",
          "make /dev/shm larger (in a container: --shm-size), or use --transport mpi "
          "and --data-mode stream");
}

SharedWindow::SharedWindow(const Communicator& ranks, std::size_t bytes)
    : ranks_(ranks.duplicate()) {
    from_root(ranks_, [&] {
        if (ranks_.size() > 1) check_shared_room(bytes);
        return std::string();
    });
    // All of it belongs to the first rank: what each part is for, and whose, is decided here.
    const std::size_t mine = ranks_.is_root() ? bytes + page_bytes : 0;
    std::byte* base = nullptr;
    const int made = MPI_Win_allocate_shared(
        static_cast<MPI_Aint>(mine), 1, MPI_INFO_NULL, ranks_.handle(), &base, &window_);
    if (made != MPI_SUCCESS && has_address_limit()) throw as_error(RefusedMemory(bytes));
    check_mpi(made, "MPI_Win_allocate_shared");
    MPI_Aint size = 0;
    int unit = 0;
    check_mpi(MPI_Win_shared_query(window_, 0, &size, &unit, &base), "MPI_Win_shared_query");
    data_ = at_page_boundary(base);
    if (ranks_.is_root()) std::memset(data_, 0, 1);
    ranks_.barrier();
}

SharedWindow::~SharedWindow() {
    // A rank that fails alone is on its way to abort the job: the others do not come to free it.
    if (window_ != MPI_WIN_NULL && std::uncaught_exceptions() == 0) MPI_Win_free(&window_);
}

}  // namespace lockstep
