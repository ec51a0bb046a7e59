// SPDX-License-Identifier: Apache-2.0
// `lockstep`: every command. It starts at once, because it leaves LibTorch to lockstep-train.
#include "app/command.hpp"

#include <new>
#include <string>
#include <vector>

int main(int argc, char** argv) try {
    return lockstep::run_program(std::vector<std::string>(argv + 1, argv + argc), {});
} catch (const std::bad_alloc&) {
    return lockstep::end_without_room();
}
