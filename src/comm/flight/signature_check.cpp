// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/signature_check.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/flight_recorder.hpp"
#include "lockstep/core/hash.hpp"

#include "flight/signatures.hpp"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

class SignatureChecked : public Collectives {
  public:
    SignatureChecked(std::unique_ptr<Collectives> inner, const Communicator& ranks)
        : inner_(std::move(inner)), control_(ranks.duplicate()) {}

    std::string_view name() const override { return inner_->name(); }
    std::byte* lend(std::size_t bytes) override { return inner_->lend(bytes); }
    void all_reduce(void* data, std::size_t count, DataType type) override {
        check_call(FlightOp::all_reduce, count, type);
        inner_->all_reduce(data, count, type);
    }
    void reduce_scatter(void* data, std::size_t count, DataType type) override {
        check_call(FlightOp::reduce_scatter, count, type);
        inner_->reduce_scatter(data, count, type);
    }
    void all_gather(void* data, std::size_t count, DataType type) override {
        check_call(FlightOp::all_gather, count, type);
        inner_->all_gather(data, count, type);
    }
    void broadcast(void* data, std::size_t bytes, int root) override {
        check_call(FlightOp::broadcast, bytes, DataType::float32, root);
        inner_->broadcast(data, bytes, root);
    }
    void barrier() override {
        check_call(FlightOp::barrier, 0, DataType::float32);
        inner_->barrier();
    }
    void set_deadline(double seconds) override { inner_->set_deadline(seconds); }

  private:
    void check_call(FlightOp op, std::size_t count, DataType type, int root = 0) {
        const std::string call =
            fmt::format("{} of {} x {} with root {}", name_of(op), count, name_of(type), root);
        if (!known_.insert(call).second) return;
        agree_on_signature(control_, hash64(bytes_of(call)), "E661", call);
    }

    std::unique_ptr<Collectives> inner_;
    const Communicator control_;
    std::set<std::string> known_;
};

}  // namespace

void agree_on_signature(const Communicator& ranks,
                        std::uint64_t signature,
                        const char* code,
                        const std::string& what) {
    const auto given =
        ranks.all_gather(std::string(reinterpret_cast<const char*>(&signature), sizeof(signature)));
    if (std::ranges::adjacent_find(given, std::not_equal_to<>()) == given.end()) return;
    agree_on_failure(ranks, difference_of(given, code, ranks.broadcast(what)));
}

void agree_on_layout(const Communicator& ranks, const FlatLayout& layout, const TreePlan& plan) {
    const LayoutSignature mine = signature_of(layout, plan);
    agree_on_signature(ranks, mine.bits, "E662", mine.text);
}

std::unique_ptr<Collectives> signature_checked(std::unique_ptr<Collectives> collectives,
                                               const Communicator& ranks) {
    return std::make_unique<SignatureChecked>(std::move(collectives), ranks);
}

}  // namespace lockstep
