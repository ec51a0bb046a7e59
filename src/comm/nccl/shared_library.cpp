// SPDX-License-Identifier: Apache-2.0
#include "nccl/shared_library.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include <dlfcn.h>
#include <link.h>

namespace lockstep {
namespace {

std::string real_path(const char* path) {
    std::error_code failed;
    const auto real = std::filesystem::canonical(path, failed);
    return failed ? path : real.string();
}

}  // namespace

SharedLibrary::~SharedLibrary() {
    if (handle_ != nullptr) ::dlclose(handle_);
}

SharedLibrary SharedLibrary::open(const std::string& name, std::string& reason) {
    // Threads of such a library (NCCL's RAS) outlive its last user: its code must stay.
    SharedLibrary library(::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE));
    if (!library) {
        const char* text = ::dlerror();
        reason = text == nullptr ? "the loader gives no reason" : text;
    }
    return library;
}

SharedLibrary SharedLibrary::already_loaded(const std::string& name) {
    return SharedLibrary(::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD));
}

void* SharedLibrary::symbol(const char* name) const {
    return ::dlsym(handle_, name);
}

std::string SharedLibrary::path() const {
    link_map* map = nullptr;
    if (::dlinfo(handle_, RTLD_DI_LINKMAP, &map) != 0) return {};
    return real_path(map->l_name);
}

std::vector<std::string> loaded_libraries(const std::string& prefix) {
    struct Search {
        const std::string& prefix;
        std::vector<std::string> found;
    } search{prefix, {}};
    ::dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* data) {
            auto& mine = *static_cast<Search*>(data);
            const std::string path = real_path(info->dlpi_name);
            if (std::filesystem::path(path).filename().string().starts_with(mine.prefix))
                mine.found.push_back(path);
            return 0;
        },
        &search);
    std::ranges::sort(search.found);
    const auto repeated = std::ranges::unique(search.found);
    search.found.erase(repeated.begin(), repeated.end());
    return search.found;
}

}  // namespace lockstep
