// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/files.hpp"

#include "facts_json.hpp"
#include "topology_check.hpp"
#include "topology_fields.hpp"

namespace lockstep {

std::string serialize(const NodeTopology& node) {
    return text_of_facts(node);
}

NodeTopology deserialize_topology(std::string_view text, const std::string& origin) {
    auto node = facts_of_text<NodeTopology>(text, origin);
    complete_topology(node);
    check_topology(node, origin);
    return node;
}

void save_topology(const NodeTopology& node, const std::filesystem::path& path) {
    const auto text = json_of_facts(node).dump(1, Utf8::replace);
    write_file_atomically(path, text + "\n");
}

NodeTopology load_topology(const std::filesystem::path& path) {
    return deserialize_topology(read_file(path), path.string());
}

}  // namespace lockstep
