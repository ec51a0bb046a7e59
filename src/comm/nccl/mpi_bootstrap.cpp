// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/bootstrap.hpp"
#include "lockstep/core/clock.hpp"

#include "base/mpi_check.hpp"

#include <chrono>
#include <list>
#include <thread>
#include <utility>

namespace lockstep {
namespace {

constexpr int notice_tag = 32000;
constexpr int gather_tags = 30000;  // a late message must not be taken for a later gather's

/// A text on its way to every other rank; lives until all have it.
struct Message {
    std::string text;
    std::vector<MPI_Request> requests;

    bool is_delivered() {
        int done = 0;
        check_mpi(
            MPI_Testall(
                static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
            "MPI_Testall");
        return done != 0;
    }
};

class MpiBootstrap : public Bootstrap {
  public:
    explicit MpiBootstrap(Communicator ranks) : ranks_(std::move(ranks)) {}

    ~MpiBootstrap() override {
        for (Message& message : sent_)
            for (MPI_Request& request : message.requests)
                if (request != MPI_REQUEST_NULL) {
                    MPI_Cancel(&request);
                    MPI_Request_free(&request);
                }
    }

    int rank() const override { return ranks_.rank(); }
    int size() const override { return ranks_.size(); }

    std::vector<std::optional<std::string>> gather_within(const std::string& bytes,
                                                          double deadline_s) override {
        const int tag = gathers_++ % gather_tags;
        send(bytes, tag);
        std::vector<std::optional<std::string>> all(static_cast<std::size_t>(size()));
        all[static_cast<std::size_t>(rank())] = bytes;
        auto missing = size() - 1;
        const double end = now_s() + deadline_s;
        while (missing > 0) {
            if (auto got = receive(tag)) {
                all[static_cast<std::size_t>(got->rank)] = std::move(got->text);
                --missing;
                continue;
            }
            if (now_s() >= end) break;
            std::this_thread::sleep_for(std::chrono::microseconds(100));
        }
        return all;
    }

    void announce(const std::string& text) override { send(text, notice_tag); }
    std::optional<Notice> notice() override { return receive(notice_tag); }

  private:
    void send(const std::string& text, int tag) {
        if (size() == 1) return;  // there need be no MPI then
        sent_.remove_if([](Message& message) { return message.is_delivered(); });
        Message& message = sent_.emplace_back();
        message.text = text;
        for (int peer = 0; peer < size(); ++peer) {
            if (peer == rank()) continue;
            message.requests.push_back(MPI_REQUEST_NULL);
            check_mpi(MPI_Isend(message.text.data(),
                                static_cast<int>(message.text.size()),
                                MPI_BYTE,
                                peer,
                                tag,
                                ranks_.handle(),
                                &message.requests.back()),
                      "MPI_Isend");
        }
    }

    std::optional<Notice> receive(int tag) {
        if (size() == 1) return {};
        int is_there = 0, bytes = 0;
        MPI_Message message = MPI_MESSAGE_NULL;
        MPI_Status status{};
        check_mpi(MPI_Improbe(MPI_ANY_SOURCE, tag, ranks_.handle(), &is_there, &message, &status),
                  "MPI_Improbe");
        if (is_there == 0) return {};
        MPI_Get_count(&status, MPI_BYTE, &bytes);
        Notice notice{status.MPI_SOURCE, std::string(static_cast<std::size_t>(bytes), '\0')};
        check_mpi(MPI_Mrecv(notice.text.data(), bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE),
                  "MPI_Mrecv");
        return notice;
    }

    Communicator ranks_;
    int gathers_ = 0;
    std::list<Message> sent_;
};

}  // namespace

std::unique_ptr<Bootstrap> make_bootstrap(const Communicator& ranks) {
    return std::make_unique<MpiBootstrap>(ranks.duplicate());
}

}  // namespace lockstep
