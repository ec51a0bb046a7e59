// SPDX-License-Identifier: Apache-2.0
#include "submit/site_preset.hpp"

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"

#include <map>
#include <ranges>

#include <fmt/format.h>
#include <fmt/ranges.h>
#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

namespace lockstep {
namespace {

std::string place(const fs::path& path, const toml::node& node) {
    const auto at = node.source().begin;
    return fmt::format("{}:{}:{}", path.string(), at.line, at.column);
}

Error wrong_type(const fs::path& path,
                 const std::string& key,
                 const toml::node& node,
                 const std::string& needs) {
    return Error("E112",
                 fmt::format("{}: '{}' has the wrong type", place(path, node), key),
                 fmt::format("it needs {}", needs),
                 "see slurm/sites for examples");
}

std::vector<std::string> texts(const fs::path& path,
                               const std::string& key,
                               const toml::node& node) {
    const toml::array* list = node.as_array();
    check(list != nullptr, [&] { return wrong_type(path, key, node, "a list of texts"); });
    std::vector<std::string> found;
    for (const toml::node& item : *list) {
        const auto text = item.value_exact<std::string>();
        check(text.has_value(), [&] { return wrong_type(path, key, item, "texts"); });
        found.push_back(*text);
    }
    return found;
}

std::string* text_target(SitePreset& site, const std::string& key) {
    if (key == "name") return &site.name;
    if (key == "interface") return &site.interface;
    if (key == "account") return &site.account;
    if (key == "qos") return &site.qos;
    if (key == "constraint") return &site.constraint;
    if (key == "mem") return &site.memory;
    if (key == "partition") return &site.partition;
    if (key == "gpu-partition") return &site.gpu_partition;
    if (key == "preemptible-partition") return &site.preemptible_partition;
    return nullptr;
}

/// One of `choices` by its word.
template <class Value>
Value chosen(const fs::path& path,
             const std::string& key,
             const toml::node& node,
             const std::map<std::string, Value>& choices) {
    const auto found = choices.find(node.value_exact<std::string>().value_or(""));
    check(found != choices.end(), [&] {
        return wrong_type(
            path, key, node, fmt::format("one of {}", fmt::join(std::views::keys(choices), ", ")));
    });
    return found->second;
}

void assign(SitePreset& site,
            const fs::path& path,
            const std::string& key,
            const toml::node& node) {
    if (key == "modules") {
        site.modules = texts(path, key, node);
    } else if (key == "launcher") {
        site.launcher = chosen<Launcher>(
            path, key, node, {{"mpirun", Launcher::mpirun}, {"srun", Launcher::srun}});
    } else if (key == "container-runtime") {
        site.container_runtime = chosen<ContainerRuntime>(
            path,
            key,
            node,
            {{"apptainer", ContainerRuntime::apptainer}, {"pyxis", ContainerRuntime::pyxis}});
    } else if (key == "signal-seconds") {
        const auto seconds = node.value_exact<std::int64_t>();
        check(seconds && *seconds > 0 && *seconds < 65536,
              [&] { return wrong_type(path, key, node, "a whole number up to 65535"); });
        site.signal_s = *seconds;
    } else {
        std::string* target = text_target(site, key);
        check(target != nullptr, [&] {
            return Error("E111",
                         fmt::format("{}: unknown key '{}'", place(path, node), key),
                         "",
                         "see slurm/sites for the keys that there are");
        });
        const auto text = node.value_exact<std::string>();
        check(text.has_value(), [&] { return wrong_type(path, key, node, "a text"); });
        *target = *text;
    }
}

}  // namespace

SitePreset read_site_preset(const fs::path& path) {
    const std::string text = read_file(path, 1u << 20);
    check_toml_depth(text, path.string());
    try {
        SitePreset site;
        for (const auto& [key, node] : toml::parse(text, path.string()))
            assign(site, path, std::string(key.str()), node);
        return site;
    } catch (const toml::parse_error& error) {
        throw Error(
            "E110",
            fmt::format("{}:{}: {}", path.string(), error.source().begin.line, error.description()),
            "",
            "write it as KEY = VALUE, texts in quotes");
    }
}

}  // namespace lockstep
