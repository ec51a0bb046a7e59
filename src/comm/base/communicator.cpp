// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/communicator.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/foreign_end.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/record.hpp"
#include "lockstep/run/flight_recorder.hpp"

#include "base/mpi_check.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <limits>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

constexpr std::size_t largest_message = std::size_t{1} << 30;

bool has_mpi() {
    int initialized = 0, finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    return initialized != 0 && finalized == 0;
}

/// Returns the begin of each rank's bytes in the joined message; one entry more than ranks.
std::vector<int> offsets_of(const std::vector<int>& sizes) {
    std::vector<int> offsets = {0};
    for (const int size : sizes) {
        expect(size <= std::numeric_limits<int>::max() - offsets.back(), "gathered bytes < 2 GiB");
        offsets.push_back(offsets.back() + size);
    }
    return offsets;
}

enum class Receivers { all, root };

/// Returns the bytes of the `senders` that this rank hears, by rank.
std::vector<std::string> gather_for(Receivers to,
                                    const std::string& bytes,
                                    MPI_Comm comm,
                                    int senders) {
    expect(bytes.size() <= largest_message, "gathered bytes <= 1 GiB");
    const auto mine = static_cast<int>(bytes.size());
    std::vector<int> sizes(static_cast<std::size_t>(senders));
    int* const each = sizes.data();
    if (to == Receivers::all)
        check_mpi(MPI_Allgather(&mine, 1, MPI_INT, each, 1, MPI_INT, comm), "MPI_Allgather");
    else
        check_mpi(MPI_Gather(&mine, 1, MPI_INT, each, 1, MPI_INT, 0, comm), "MPI_Gather");
    const std::vector<int> offsets = offsets_of(sizes);
    std::string joined(static_cast<std::size_t>(offsets.back()), '\0');
    const char* const from = bytes.data();
    char* const into = joined.data();
    const int* const at = offsets.data();
    if (to == Receivers::all)
        check_mpi(MPI_Allgatherv(from, mine, MPI_BYTE, into, each, at, MPI_BYTE, comm),
                  "MPI_Allgatherv");
    else
        check_mpi(MPI_Gatherv(from, mine, MPI_BYTE, into, each, at, MPI_BYTE, 0, comm),
                  "MPI_Gatherv");
    std::vector<std::string> parts;
    for (std::size_t i = 0; i < sizes.size(); ++i) parts.emplace_back(into + at[i], each[i]);
    return parts;
}

template <class Handle, class T>
void all_reduce(const std::shared_ptr<Handle>& handle,
                std::span<T> values,
                MPI_Datatype type,
                MPI_Op operation) {
    if (!handle) return;
    const typename Handle::Noted noted(*handle, FlightOp::all_reduce);
    expect(values.size() <= largest_message, "values to reduce <= 2^30");
    const auto count = static_cast<int>(values.size());
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, values.data(), count, type, operation, handle->comm),
              "MPI_Allreduce");
}

/// The ranks that failed, by their errors.
struct Failures {
    std::vector<int> same;   ///< with the text of the lowest failing rank, that one included
    std::vector<int> other;  ///< with another text
};

Failures sort_failures(const std::vector<std::string>& texts) {
    Failures failures;
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
        if (texts[rank].empty()) continue;
        const bool is_same = failures.same.empty() ||
                             texts[rank] == texts[static_cast<std::size_t>(failures.same.front())];
        (is_same ? failures.same : failures.other).push_back(static_cast<int>(rank));
    }
    return failures;
}

/// " on node1, node2 and 3 more": the nodes of `ranks`; "" where all ranks share one.
std::string nodes_text(const std::vector<int>& ranks, const std::vector<std::string>& host_of) {
    constexpr std::size_t most_named = 4;
    if (std::ranges::adjacent_find(host_of, std::ranges::not_equal_to{}) == host_of.end())
        return {};
    std::vector<std::string> nodes;
    for (const int rank : ranks) {
        const std::string& host = host_of[static_cast<std::size_t>(rank)];
        if (std::ranges::find(nodes, host) == nodes.end()) nodes.push_back(host);
    }
    const std::size_t shown = std::min(nodes.size(), most_named);
    std::string text = fmt::format(
        " on {}", fmt::join(nodes.begin(), nodes.begin() + std::ptrdiff_t(shown), ", "));
    if (shown < nodes.size()) text += fmt::format(" and {} more", nodes.size() - shown);
    return text;
}

std::string same_text(const std::vector<int>& same, const std::vector<std::string>& host_of) {
    const std::size_t all = host_of.size();
    if (all == 1) return {};
    if (same.size() < all) return ranks_text(same) + nodes_text(same, host_of) + " only";
    return "same on " + ranks_text(std::span(same).subspan(1));
}

Error with_others(const Error& first,
                  const std::vector<int>& other,
                  const std::string& nodes,
                  const Error& second) {
    const std::string note = fmt::format("{}{} failed otherwise; rank {}: {}: {}",
                                         ranks_text(other),
                                         nodes,
                                         other.front(),
                                         second.code(),
                                         second.what());
    return Error(first.code(),
                 first.what(),
                 first.why().empty() ? note : first.why() + "\n" + note,
                 first.fix());
}

}  // namespace

bool launched_by_mpi() {
    const Environment environment;
    const auto has = [&](const char* name) { return environment.text(name).has_value(); };
    // A number that somebody exported is no launcher: each of them sets more than a rank.
    return has("OMPI_COMM_WORLD_SIZE") || (has("PMIX_RANK") && has("PMIX_NAMESPACE")) ||
           (has("PMI_RANK") &&
            parse_integer(environment.text("PMI_SIZE").value_or("")).value_or(1) > 1);
}

MpiSession::MpiSession() {
    int level = MPI_THREAD_SINGLE;
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread");
    if (level >= MPI_THREAD_SERIALIZED) return;
    MPI_Finalize();
    throw Error("E604",
                fmt::format("{} gives thread level {}", library_version(), level),
                "checkpoints and gradients are exchanged by different threads",
                "use an MPI built with thread support (MPI_THREAD_SERIALIZED or more)");
}

MpiSession::~MpiSession() {
    MPI_Finalize();
}

std::string MpiSession::library_version() {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    return text.data();
}

struct Communicator::Handle {
    explicit Handle(MPI_Comm owned) : comm(owned) {}
    ~Handle() {
        // A rank that fails alone is on its way to abort the job: the others do not come to free
        // it.
        if (has_mpi() && std::uncaught_exceptions() == 0) MPI_Comm_free(&comm);
    }
    Handle& operator=(Handle&&) = delete;

    /// Notes a call from construction to destruction, where that is asked for.
    class Noted {
      public:
        Noted(const Handle& handle, FlightOp op) {
            FlightRecorder* const recorder = handle.recorder;
            if (recorder == nullptr) return;
            if (recorder->is_running() && !may_be_long(recorder->phase().phase)) return;
            recorder_ = recorder;
            ticket_ = recorder->enqueue(handle.channel, {.op = op});
            recorder->start(ticket_);
        }
        ~Noted() {
            if (recorder_ != nullptr) recorder_->end(ticket_);
        }
        Noted& operator=(Noted&&) = delete;

      private:
        FlightRecorder* recorder_ = nullptr;
        FlightRecorder::Ticket ticket_;
    };

    MPI_Comm comm;
    FlightRecorder* recorder = nullptr;
    std::uint32_t channel = 0;
};

Communicator::Communicator(MPI_Comm owned) : handle_(std::make_shared<Handle>(owned)) {
    check_mpi(MPI_Comm_set_errhandler(owned, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check_mpi(MPI_Comm_rank(owned, &rank_), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(owned, &size_), "MPI_Comm_size");
}

Communicator Communicator::world() {
    if (!has_mpi()) return {};
    MPI_Comm copy = MPI_COMM_NULL;
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &copy), "MPI_Comm_dup");
    return Communicator(copy);
}

MPI_Comm Communicator::handle() const {
    return handle_ ? handle_->comm : MPI_COMM_NULL;
}

Communicator Communicator::duplicate() const {
    if (!handle_) return {};
    MPI_Comm copy = MPI_COMM_NULL;
    check_mpi(MPI_Comm_dup(handle(), &copy), "MPI_Comm_dup");
    return Communicator(copy);
}

Communicator Communicator::split_by_node() const {
    if (!handle_) return {};
    MPI_Comm node = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split_type(handle(), MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node),
              "MPI_Comm_split_type");
    return Communicator(node);
}

Communicator Communicator::split(int color) const {
    if (!handle_) return {};
    MPI_Comm part = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split(handle(), color, rank_, &part), "MPI_Comm_split");
    return Communicator(part);
}

void Communicator::record_in(FlightRecorder* recorder) const {
    if (!handle_) return;
    if (recorder != nullptr) handle_->channel = recorder->add_channel("control");
    handle_->recorder = recorder;
}

void Communicator::barrier() const {
    if (!handle_) return;
    const Handle::Noted noted(*handle_, FlightOp::barrier);
    check_mpi(MPI_Barrier(handle()), "MPI_Barrier");
}

void Communicator::barrier_asleep() const {
    if (!handle_) return;
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Ibarrier(handle(), &request), "MPI_Ibarrier");
    for (int is_over = 0; is_over == 0; std::this_thread::sleep_for(std::chrono::microseconds(100)))
        check_mpi(MPI_Test(&request, &is_over, MPI_STATUS_IGNORE), "MPI_Test");
}

std::string Communicator::broadcast(std::string bytes, int root) const {
    if (!handle_) return bytes;
    const Handle::Noted noted(*handle_, FlightOp::broadcast);
    std::uint64_t size = bytes.size();
    check_mpi(MPI_Bcast(&size, 1, MPI_UINT64_T, root, handle()), "MPI_Bcast");
    bytes.resize(size);
    for (std::size_t sent = 0; sent < size; sent += largest_message) {
        const auto part = static_cast<int>(std::min(size - sent, largest_message));
        check_mpi(MPI_Bcast(bytes.data() + sent, part, MPI_BYTE, root, handle()), "MPI_Bcast");
    }
    return bytes;
}

std::vector<std::string> Communicator::all_gather(const std::string& bytes) const {
    if (!handle_) return {bytes};
    const Handle::Noted noted(*handle_, FlightOp::all_gather);
    return gather_for(Receivers::all, bytes, handle(), size_);
}

std::vector<std::string> Communicator::gather(const std::string& bytes) const {
    if (!handle_) return {bytes};
    const Handle::Noted noted(*handle_, FlightOp::all_gather);
    return gather_for(Receivers::root, bytes, handle(), is_root() ? size_ : 0);
}

void Communicator::all_reduce_sum(std::span<std::int64_t> values) const {
    all_reduce(handle_, values, MPI_INT64_T, MPI_SUM);
}

void Communicator::all_reduce_max(std::span<std::int64_t> values) const {
    all_reduce(handle_, values, MPI_INT64_T, MPI_MAX);
}

void Communicator::all_reduce_sum(std::span<double> values) const {
    all_reduce(handle_, values, MPI_DOUBLE, MPI_SUM);
}

void Communicator::abort(int exit_code) const {
    std::fflush(nullptr);
    if (has_mpi()) MPI_Abort(MPI_COMM_WORLD, exit_code);
    end_process(exit_code);
}

void check_mpi(int result, std::string_view call) {
    if (result == MPI_SUCCESS) return;
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(result, text.data(), &length);
    throw Error("E620",
                fmt::format("{} failed: {}", call, text.data()),
                "another rank may have ended, or the network between ranks failed",
                "look at the logs of the other ranks; start the same command again to resume");
}

void agree_on_failure(const Communicator& ranks, const std::optional<Error>& mine) {
    std::array<std::int64_t, 1> failed = {mine ? 1 : 0};
    ranks.all_reduce_max(failed);
    if (failed[0] == 0) return;
    const auto texts = ranks.all_gather(mine ? error_bytes(*mine) : "");
    const auto host_of = ranks.all_gather(host_name());
    const Failures failures = sort_failures(texts);
    const auto error_of = [&](int rank) {
        return error_from_bytes(texts[static_cast<std::size_t>(rank)]);
    };
    Error error = error_of(failures.same.front());
    if (!failures.other.empty())
        error = with_others(error,
                            failures.other,
                            nodes_text(failures.other, host_of),
                            error_of(failures.other.front()));
    throw AgreedError(error, failures.same, same_text(failures.same, host_of), ranks.is_root());
}

std::string from_root(const Communicator& ranks, const std::function<std::string()>& step) {
    std::string message;
    if (ranks.is_root()) {
        try {
            message = "=" + step();
        } catch (const std::exception& error) {
            message = "!" + error_bytes(as_error(error));
        }
    }
    message = ranks.broadcast(std::move(message));
    const std::string content = message.substr(1);
    if (message.front() == '!')
        throw AgreedError(error_from_bytes(content), {0}, "", ranks.is_root());
    return content;
}

}  // namespace lockstep
