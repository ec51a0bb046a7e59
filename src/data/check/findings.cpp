// SPDX-License-Identifier: Apache-2.0
#include "findings.hpp"

#include "lockstep/core/record.hpp"

#include <algorithm>
#include <iterator>
#include <string>

namespace lockstep {

void describe(Record& record, Finding& finding) {
    record.field("code", finding.code);
    record.field("file", finding.file);
    record.field("field", finding.field);
    record.field("block", finding.block);
    record.field("offset", finding.offset);
    record.field("bytes", finding.bytes);
    record.field("text", finding.text);
}

namespace {

// The findings of one member, group by group.
struct Findings {
    std::vector<std::vector<Finding>> groups;
};

void describe(Record& record, Findings& findings) {
    record.field("groups", findings.groups);
}

}  // namespace

std::vector<Finding> merged(const Team& team, const std::vector<std::vector<Finding>>& mine) {
    std::vector<Findings> theirs;
    const std::string text = json_of_record(Findings{mine}).dump();
    const std::string origin = "another rank's findings";
    for (const std::string& one : gather(team, text))
        theirs.push_back(record_from_json<Findings>(parse_json(one, origin), origin));
    std::vector<Finding> all;
    for (std::size_t group = 0; group < mine.size(); ++group)
        for (const Findings& one : theirs)
            std::ranges::copy(one.groups.at(group), std::back_inserter(all));
    return all;
}

}  // namespace lockstep
