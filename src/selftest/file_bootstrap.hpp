// SPDX-License-Identifier: Apache-2.0
// A bootstrap over the files of one folder, for processes of one machine that has no MPI.
#pragma once

#include "lockstep/comm/bootstrap.hpp"

#include <filesystem>
#include <set>
#include <string>

namespace lockstep {

/// The folder is empty at first, and this bootstrap's alone.
class FileBootstrap : public Bootstrap {
  public:
    FileBootstrap(std::filesystem::path folder, int rank, int size)
        : folder_(std::move(folder)), rank_(rank), size_(size) {}

    int rank() const override { return rank_; }
    int size() const override { return size_; }
    std::vector<std::optional<std::string>> gather_within(const std::string& bytes,
                                                          double deadline_s) override;
    void announce(const std::string& text) override;
    std::optional<Notice> notice() override;

  private:
    std::filesystem::path path_of(const std::string& kind, int rank) const;

    std::filesystem::path folder_;
    int rank_, size_;
    int gathers_ = 0;
    std::set<int> heard_;
};

}  // namespace lockstep
