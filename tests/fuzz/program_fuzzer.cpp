// SPDX-License-Identifier: Apache-2.0
// libFuzzer: whatever an exported program's archive holds, it is refused or can be described. The
// input is an archive, or a 'T' and the text of its graph, which is put into a sound one.
#include "program/program_file.hpp"
#include "support/made_up_program.hpp"

#include <cstdlib>
#include <string>

#include <sys/mman.h>
#include <unistd.h>

namespace lockstep {
namespace {

std::string archive_of(const std::string& input) {
    if (input[0] != 'T') return input;
    test::ArchiveEntries entries = test::made_up_classifier(2, 2).entries();
    entries[0].second = input.substr(1);
    return test::zip_of(entries);
}

void read(const std::string& archive) {
    const int file = memfd_create("program", MFD_CLOEXEC);
    if (file < 0 || write(file, archive.data(), archive.size()) < 0) std::abort();
    try {
        const ProgramFile program = read_program("/proc/self/fd/" + std::to_string(file));
        for (const ProgramInput& input : program.inputs) shape_text(input);
        for (std::size_t i = 0; i < program.nodes.size(); ++i) source_line(program.nodes[i]);
    } catch (const Error& error) {
        if (error.code() != "E250") std::abort();
    }
    close(file);
}

}  // namespace
}  // namespace lockstep

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string input(reinterpret_cast<const char*>(data), size);
    if (!input.empty()) lockstep::read(lockstep::archive_of(input));
    return 0;
}
