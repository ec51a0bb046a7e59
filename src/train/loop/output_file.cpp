// SPDX-License-Identifier: Apache-2.0
// Without LibTorch: 'lockstep predict' asks before it becomes a program that has it.
//
// Tested: e2e/alone_test.cpp, e2e/commands_test.cpp.
#include "loop/output_file.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/train/infer.hpp"

#include <fmt/format.h>

namespace lockstep {

OutputFormat output_format(const fs::path& path) {
    const fs::path ending = path.extension();
    if (ending == ".npy") return OutputFormat::npy;
    if (ending == ".csv") return OutputFormat::csv;
    check(ending == ".h5" || ending == ".hdf5",
          "E103",
          fmt::format("'{}' is no name of a file of outputs", path.string()),
          "its ending says what it is: .csv, .npy for NPY, .h5 or .hdf5 for HDF5",
          "for example --out new.csv, --out new.npy or --out new.h5");
    return OutputFormat::hdf5;
}

fs::path names_file(fs::path outputs) {
    return outputs.replace_extension(".names.json");
}

void check_new_outputs(const fs::path& path) {
    const bool is_npy = output_format(path) == OutputFormat::npy;
    for (const fs::path& file : {path, is_npy ? names_file(path) : path})
        check(!fs::exists(file),
              "E407",
              fmt::format("'{}' exists", file.string()),
              "nothing is overwritten",
              "give another name, or remove it");
}

}  // namespace lockstep
