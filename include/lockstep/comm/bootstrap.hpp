// SPDX-License-Identifier: Apache-2.0
/// @file
/// Exchanges small texts between ranks, with deadlines, before they have a fast network.
#pragma once

#include "lockstep/comm/communicator.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// The message of another rank that gave up.
struct Notice {
    int rank = 0;      ///< rank that gave up
    std::string text;  ///< its message
};

/// Exchange of texts. One thread at a time; all ranks make the same gathers in the same order.
class Bootstrap {
  public:
    virtual ~Bootstrap() = default;
    virtual int rank() const = 0;  ///< rank of this process, from 0
    virtual int size() const = 0;  ///< number of ranks

    /// Collective. Returns the bytes of all ranks, by rank; nothing for a rank that did not come
    /// within `deadline_s`.
    virtual std::vector<std::optional<std::string>> gather_within(const std::string& bytes,
                                                                  double deadline_s) = 0;

    /// Tells all other ranks, without waiting for them. Call it at most once.
    virtual void announce(const std::string& text) = 0;

    /// Returns the next announcement of another rank, each once. Never waits. Also lets the
    /// transport make progress.
    virtual std::optional<Notice> notice() = 0;
};

/// Collective. Makes an exchange over messages of its own duplicate of `ranks`.
std::unique_ptr<Bootstrap> make_bootstrap(const Communicator& ranks);

/// Collective. Calls gather_within(). Errors: E630 naming the ranks that did not come to `purpose`.
std::vector<std::string> gather_all(Bootstrap& bootstrap,
                                    const std::string& bytes,
                                    double deadline_s,
                                    const std::string& purpose);

/// Collective. Calls gather_all() with the result of `mine` on each rank. If `mine` throws Error on
/// one rank, all fail: that rank with its error, the others with E682, which repeats it.
std::vector<std::string> gather_or_fail(Bootstrap& bootstrap,
                                        const std::function<std::string()>& mine,
                                        double deadline_s,
                                        const std::string& purpose);

}  // namespace lockstep
