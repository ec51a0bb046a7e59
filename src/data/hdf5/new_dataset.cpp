// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/new_dataset.hpp"

#include "lockstep/core/error.hpp"

#include "h5.hpp"

namespace lockstep {
namespace {

std::uint64_t write_objects(const std::filesystem::path& path,
                            const std::string& name,
                            ElementType type,
                            const std::vector<std::int64_t>& shape,
                            int& error) {
    const h5::Handle file = h5::create_file(path, h5::Alignment::large_objects, error);
    const h5::DatasetShape size{{shape.begin(), shape.end()}, {}};
    const h5::Handle dataset = h5::create_dataset(file, name, h5::type_of(type), size, path);
    const haddr_t offset = H5Dget_offset(dataset.id());
    expect(offset != HADDR_UNDEF, "a contiguous data set is placed when it is made");
    return offset;
}

}  // namespace

std::uint64_t create_dataset_file(const std::filesystem::path& path,
                                  const std::string& name,
                                  ElementType type,
                                  const std::vector<std::int64_t>& shape) {
    const h5::QuietErrors quiet;
    int error = 0;
    const std::uint64_t offset = write_objects(path, name, type, shape, error);
    check(error == 0, [&] { return system_error("write", path, error); });
    return offset;
}

}  // namespace lockstep
