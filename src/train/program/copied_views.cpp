// SPDX-License-Identifier: Apache-2.0
// A program is exported on one device and trained on another, where kernels give other strides: a
// view that was possible there fails here (attention in fp32 on a GPU). Such a view may be a copy
// if nobody writes to it.
//
// Tested: train/program/program_graph_test.cpp.
#include "program/program_graph.hpp"

#include <algorithm>
#include <numeric>

namespace lockstep {
namespace {

/// Slots whose values share memory.
class Families {
  public:
    explicit Families(std::size_t slots) : parents_(slots) {
        std::iota(parents_.begin(), parents_.end(), SlotIndex{0});
    }
    SlotIndex of(SlotIndex slot) const {
        while (parents_[slot] != slot) slot = parents_[slot];
        return slot;
    }
    void join(SlotIndex a, SlotIndex b) { parents_[of(a)] = of(b); }

  private:
    std::vector<SlotIndex> parents_;
};

template <class Visit>
void for_each_alias(const ProgramCall& call, Visit&& visit) {
    if (!call.op) return;
    for (const Feed& feed : call.feeds)
        if (const auto* alias = call.op->schema().arguments()[feed.argument].alias_info())
            for (const auto& slot : feed.slots)
                if (slot) visit(*slot, *alias);
}

}  // namespace

void let_views_copy(ProgramGraph& graph) {
    Families families(graph.start.size());
    std::vector<SlotIndex> written;
    for (const ProgramCall& call : graph.calls)
        for_each_alias(call, [&](SlotIndex slot, const c10::AliasInfo& alias) {
            if (alias.isWrite()) written.push_back(slot);
            for (const auto& result : call.results)
                if (result) families.join(*result, slot);
        });
    const c10::OperatorHandle copies =
        c10::Dispatcher::singleton().findSchemaOrThrow("aten::reshape", "");
    for (ProgramCall& call : graph.calls) {
        const bool is_view =
            call.name == "aten::view" && call.op && call.op->schema().overload_name().empty();
        const auto shares_memory = [&](SlotIndex slot) {
            return families.of(slot) == families.of(*call.results.front());
        };
        if (is_view && std::ranges::none_of(written, shares_memory)) call.op = copies;
    }
}

}  // namespace lockstep
