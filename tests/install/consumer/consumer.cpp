// SPDX-License-Identifier: Apache-2.0
// Uses one thing of each module it links, so that headers and libraries must both be there.
#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/data/dataset_index.hpp"

#include <iostream>

int main() {
    const lockstep::Communicator alone;
    if (alone.size() != 1) return 1;
    try {
        lockstep::DatasetIndex::open("there/is/no/such/folder");
    } catch (const lockstep::Error& error) {
        std::cout << "consumer: hash " << lockstep::hash128("consumer").hex() << ", expected error "
                  << error.code() << '\n';
        return 0;
    }
    return 1;
}
