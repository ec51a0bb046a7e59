// SPDX-License-Identifier: Apache-2.0
// lockstep-h5probe: libhdf5 in a separate process, for untrusted files.
#include "hdf5/sandbox.hpp"

#include <cstdio>

#include <sys/socket.h>
#include <unistd.h>

int main() {
    int kind = 0;
    socklen_t size = sizeof kind;
    if (::getsockopt(STDIN_FILENO, SOL_SOCKET, SO_TYPE, &kind, &size) != 0) {
        std::fputs("lockstep-h5probe is started by lockstep, not by hand\n", stderr);
        return 64;
    }
    const int code = lockstep::serve_requests(STDIN_FILENO);
    // Not by way of libhdf5's own clean-up, which may meet what a hostile file left behind.
    ::_exit(code);
}
