// SPDX-License-Identifier: Apache-2.0
#include "app/program.hpp"

#include <string>
#include <vector>

int main(int argc, char** argv) {
    return lockstep::run_program(std::vector<std::string>(argv + 1, argv + argc));
}
