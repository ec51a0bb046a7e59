// SPDX-License-Identifier: Apache-2.0
#include "listing.hpp"

#include "h5.hpp"

namespace lockstep {
namespace {

// Of links, which may be many without being data sets.
constexpr std::size_t most_links = 4096;

herr_t note_name(hid_t, const char* name, const H5L_info_t*, void* names) {
    auto& all = *static_cast<std::vector<std::string>*>(names);
    all.push_back(std::string("/") + name);
    return all.size() < most_links ? 0 : 1;
}

bool is_dataset(const h5::Handle& file, const std::string& name) {
    const h5::Handle access = h5::access_to_dataset(Links::refused);
    const h5::Handle object(H5Oopen(file.id(), name.c_str(), access.id()), H5Oclose);
    return object && H5Iget_type(object.id()) == H5I_DATASET;
}

}  // namespace

FileRequest list_datasets(const std::filesystem::path& path) {
    const h5::QuietErrors quiet;
    const h5::Handle file = h5::open_for_probing(path);
    std::vector<std::string> links;
    H5Lvisit(file.id(), H5_INDEX_NAME, H5_ITER_INC, note_name, &links);
    FileRequest found{path, {}};
    for (const std::string& name : links) {
        if (found.datasets.size() == most_listed) break;
        if (is_dataset(file, name)) found.datasets.push_back(name);
    }
    return found;
}

}  // namespace lockstep
