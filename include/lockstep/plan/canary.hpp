// SPDX-License-Identifier: Apache-2.0
/// @file
/// The contract of bits by proof instead of by list: a hash of one step of equal samples. Ranks,
/// and starts of a run, that compute other bits are told apart by it before they train together.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/environment.hpp"

#include "model/model.hpp"

#include <map>
#include <string>

namespace lockstep {

class Record;

/// What one rank computed, and on what.
struct Canary {
    std::string hash;                              ///< BlankStep::hash
    std::string host;                              ///< of the rank
    std::string processor;                         ///< its model
    std::map<std::string, std::string> variables;  ///< which the libraries that compute may look at
};

void describe(Record& record, Canary& canary);

/// The canary of this process, computed on `processor`.
Canary make_canary(const std::string& hash,
                   const std::string& host,
                   const std::string& processor,
                   const Environment& environment);

/// Collective. Of a model by `author`. Errors: E707 naming ranks, nodes, processors and variables
/// that are not alike, or a user's model where these are.
void check_same_canary(const Communicator& ranks, const Canary& mine, ModelAuthor author);

}  // namespace lockstep
