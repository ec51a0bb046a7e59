// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/signature_check.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/flight_recorder.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/ranks_text.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace lockstep {
namespace {

/// Ranks by what they gave, those that most gave first; between equals, the lowest rank's first.
std::vector<std::vector<int>> grouped_by(const std::vector<std::string>& given) {
    std::map<std::string, std::vector<int>> groups;
    for (std::size_t rank = 0; rank < given.size(); ++rank)
        groups[given[rank]].push_back(static_cast<int>(rank));
    std::vector<std::vector<int>> sorted;
    for (auto& [signature, ranks] : groups) sorted.push_back(std::move(ranks));
    std::ranges::sort(sorted, {}, [](const auto& ranks) {
        return std::pair(-static_cast<int>(ranks.size()), ranks.front());
    });
    return sorted;
}

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
    const auto groups = grouped_by(ranks.all_gather(
        std::string(reinterpret_cast<const char*>(&signature), sizeof(signature))));
    if (groups.size() == 1) return;
    std::vector<int> others;
    for (auto group = groups.begin() + 1; group != groups.end(); ++group)
        others.insert(others.end(), group->begin(), group->end());
    std::ranges::sort(others);
    const Error error(code,
                      fmt::format("{} {} from {}: on rank 0, {}",
                                  ranks_text(others),
                                  others.size() == 1 ? "differs" : "differ",
                                  ranks_text(groups.front()),
                                  ranks.broadcast(what)),
                      "every rank must do the same, in the same order and with the same sizes",
                      "see that all ranks run the same program with the same settings");
    agree_on_failure(ranks, error);
}

void agree_on_layout(const Communicator& ranks, const FlatLayout& layout, const TreePlan& plan) {
    std::vector<std::uint64_t> facts = {layout.size(),
                                        layout.state().begin,
                                        layout.state().end,
                                        static_cast<std::uint64_t>(plan.virtual_ranks()),
                                        static_cast<std::uint64_t>(plan.summation())};
    for (std::size_t b = 0; b < layout.bucket_count(); ++b)
        facts.insert(facts.end(), {layout.bucket(b).begin, layout.bucket(b).end});
    for (std::size_t t = 0; t < layout.tensor_count(); ++t)
        facts.insert(facts.end(), {layout.tensor(t).begin, layout.tensor(t).end});
    agree_on_signature(ranks,
                       hash64(bytes_of(std::span<const std::uint64_t>(facts))),
                       "E662",
                       fmt::format("{} tensors in {} buckets, {} floats, V = {}",
                                   layout.tensor_count(),
                                   layout.bucket_count(),
                                   layout.size(),
                                   plan.virtual_ranks()));
}

std::unique_ptr<Collectives> signature_checked(std::unique_ptr<Collectives> collectives,
                                               const Communicator& ranks) {
    return std::make_unique<SignatureChecked>(std::move(collectives), ranks);
}

}  // namespace lockstep
