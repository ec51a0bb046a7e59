// SPDX-License-Identifier: Apache-2.0
/// @file
/// Exchange of small texts between ranks, with deadlines, before they have a fast network.
#pragma once

#include "lockstep/comm/communicator.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// What another rank said when it gave up.
struct Notice {
    int rank = 0;      ///< that gave up
    std::string text;  ///< its words
};

/// One thread at a time; the same gathers in the same order on every rank.
class Bootstrap {
  public:
    virtual ~Bootstrap() = default;
    virtual int rank() const = 0;  ///< of this process, from 0
    virtual int size() const = 0;  ///< how many ranks there are

    /// Collective. Everyone's bytes, by rank; nothing for a rank that did not come within
    /// `deadline_s`.
    virtual std::vector<std::optional<std::string>> gather_within(const std::string& bytes,
                                                                  double deadline_s) = 0;

    /// Tells all other ranks, without waiting for them. Call it at most once.
    virtual void announce(const std::string& text) = 0;

    /// The next announcement of another rank, each once. Never waits. Also lets the transport make
    /// progress.
    virtual std::optional<Notice> notice() = 0;
};

/// Collective. Over messages of its own duplicate of `ranks`.
std::unique_ptr<Bootstrap> make_bootstrap(const Communicator& ranks);

/// Collective. gather_within(), or Error E630 naming the ranks that did not come to `purpose`.
std::vector<std::string> gather_all(Bootstrap& bootstrap,
                                    const std::string& bytes,
                                    double deadline_s,
                                    const std::string& purpose);

/// Collective. gather_all() of the result of `mine` on each rank. If it throws Error on one, all
/// end: that rank with its error, the others with E682, which repeats it.
std::vector<std::string> gather_or_fail(Bootstrap& bootstrap,
                                        const std::function<std::string()>& mine,
                                        double deadline_s,
                                        const std::string& purpose);

}  // namespace lockstep
