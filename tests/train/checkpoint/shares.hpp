// SPDX-License-Identifier: Apache-2.0
// What tests of checkpoints save: a share of each rank, in one folder for all.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/train/checkpoint.hpp"

#include "support/temp_dir.hpp"

#include <numeric>
#include <optional>

#include <gtest/gtest.h>

namespace lockstep::test {

/// A rank's share of each tensor, whose values count on from `base`, and `apart` more in the next.
struct Share {
    Share(const std::vector<TensorMeta>& tensors, int rank, int ranks, float base, float apart) {
        for (std::size_t t = 0; t < tensors.size(); ++t) {
            const std::uint64_t n = tensors[t].count();
            const auto r = static_cast<std::uint64_t>(rank), p = static_cast<std::uint64_t>(ranks);
            const std::uint64_t begin = n * r / p, end = n * (r + 1) / p;
            auto& values = memory.emplace_back(end - begin);
            std::iota(values.begin(), values.end(), base + apart * float(t) + float(begin));
            if (begin < end) pieces.push_back({t, begin, end - begin, values.data()});
        }
    }
    Share(const Share&) = delete;  // the pieces are of this memory

    std::vector<std::vector<float>> memory;
    std::vector<TensorPiece> pieces;
};

/// One folder for all ranks, removed by rank 0 after everyone is done.
class SharedFolder : public testing::Test {
  protected:
    SharedFolder() {
        if (ranks_.is_root()) made_.emplace();
        folder_ = ranks_.broadcast(made_ ? made_->path().string() : "");
    }
    ~SharedFolder() override { ranks_.barrier(); }

    Communicator ranks_ = Communicator::world();
    fs::path folder_;

  private:
    std::optional<TempDir> made_;
};

}  // namespace lockstep::test
