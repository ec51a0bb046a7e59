// SPDX-License-Identifier: Apache-2.0
#include "collectives/lent_windows.hpp"

#include "lockstep/core/error.hpp"

#include "base/aligned_floats.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace lockstep {

std::byte* LentWindows::lend(std::size_t bytes) {
    expect(lent_.size() < SharedCall::private_memory, "fewer than 65535 windows are lent");
    const Lent& lent = lent_.emplace_back(ranks_, std::max(whole_pages(bytes), page_bytes));
    std::memset(lent.mine, 0, lent.part_bytes);
    ranks_.barrier();
    return lent.mine;
}

void LentWindows::locate(const Message& message, SharedCall& call) const {
    const auto data = reinterpret_cast<std::uintptr_t>(message.data);
    for (std::size_t i = 0; i < lent_.size(); ++i) {
        const auto begin = reinterpret_cast<std::uintptr_t>(lent_[i].mine);
        const std::uintptr_t end = begin + lent_[i].part_bytes;
        if (data < begin || data >= end) continue;
        expect(message.bytes <= end - data, "a buffer ends in the memory that it begins in");
        call.window = static_cast<std::uint16_t>(i);
        call.offset = data - begin;
        return;
    }
}

}  // namespace lockstep
