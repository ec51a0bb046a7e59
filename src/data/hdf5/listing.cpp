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

// Of one that the library does not open, since it is damaged or newer. What cannot be known counts,
// too: better a name with the reason than none.
bool may_be_dataset(const h5::Handle& file, const std::string& name, const h5::Handle& access) {
    if (H5Lexists(file.id(), name.c_str(), access.id()) <= 0 ||
        H5Oexists_by_name(file.id(), name.c_str(), access.id()) == 0)
        return false;
    H5O_info_t info{};
#if H5_VERSION_GE(1, 12, 0)
    const herr_t got =
        H5Oget_info_by_name(file.id(), name.c_str(), &info, H5O_INFO_BASIC, access.id());
#else
    const herr_t got = H5Oget_info_by_name(file.id(), name.c_str(), &info, access.id());
#endif
    return got < 0 || info.type == H5O_TYPE_DATASET;
}

bool is_dataset(const h5::Handle& file, const std::string& name) {
    bool leads_away = false;
    const h5::Handle access = h5::access_to_dataset(Links::refused, &leads_away);
    const h5::Handle object(H5Oopen(file.id(), name.c_str(), access.id()), H5Oclose);
    if (object) return H5Iget_type(object.id()) == H5I_DATASET;
    return !leads_away && may_be_dataset(file, name, access);
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
