// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/job_request.hpp"

#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/split.hpp"

#include <algorithm>
#include <cctype>
#include <regex>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr const char* name_pattern = "[A-Za-z0-9][A-Za-z0-9._-]{0,127}";

Error unreadable(const std::string& name, const std::string& text, const std::string& forms) {
    return Error("E103",
                 fmt::format("--{} is '{}'", name, printable(text)),
                 "",
                 fmt::format("write it as {}", forms));
}

bool matches(const std::string& text, const std::string& pattern) {
    return text.size() < 4096 && std::regex_match(text, std::regex(pattern));
}

std::string strange_characters(const std::string& text, const std::string& allowed) {
    std::string found;
    for (const char c : text) {
        const bool is_fine =
            std::isalnum(static_cast<unsigned char>(c)) || allowed.find(c) != allowed.npos;
        if (!is_fine && found.find(c) == found.npos) found += c;
    }
    return printable(found);
}

// Every value of an option gets into a comment line of the script, where nothing is quoted.
void check_characters(const SbatchOption& option) {
    const std::string text = option.value.value_or("");
    const std::string allowed = "._-+,:%=@/[]()&|*!?";
    const std::string strange = strange_characters(text, allowed);
    check(strange.empty() && (!option.value || !text.empty()), [&] {
        return Error("E532",
                     fmt::format("--{} is '{}'", option.name, printable(text)),
                     text.empty()
                         ? "it is empty"
                         : fmt::format("a batch script cannot contain '{}' safely", strange),
                     "use letters, digits and . _ -");
    });
}

std::string name_in(const SbatchOptions& options, const std::string& name) {
    const auto text = value_of(options, name);
    if (!text) return "";
    check(matches(*text, name_pattern), [&] {
        return Error("E532",
                     fmt::format("--{} is '{}'", name, printable(*text)),
                     "a batch script and file names cannot contain all of its characters",
                     "letters, digits and . _ -, a letter or digit first, at most 128");
    });
    return *text;
}

std::optional<std::int64_t> whole_in(const SbatchOptions& options, const std::string& name) {
    const auto text = value_of(options, name);
    if (!text) return std::nullopt;
    check(matches(*text, "[0-9]{1,9}") && *parse_integer(*text) > 0,
          [&] { return unreadable(name, *text, "a whole number, such as 2"); });
    return parse_integer(*text);
}

void read_nodes(const SbatchOptions& options, JobPart& part) {
    const auto text = value_of(options, "nodes");
    if (!text) return;
    const auto ends = split(*text, '-');
    const bool is_range = matches(*text, "[1-9][0-9]{0,8}(-[1-9][0-9]{0,8})?");
    check(is_range, [&] { return unreadable("nodes", *text, "a number, or a range such as 1-4"); });
    part.least_nodes = parse_integer(ends.front());
    part.most_nodes = parse_integer(ends.back());
    check(*part.least_nodes <= *part.most_nodes,
          [&] { return unreadable("nodes", *text, "LEAST-MOST"); });
}

void read_gpus(const SbatchOptions& options, JobPart& part) {
    std::string text = value_of(options, "gpus-per-node").value_or("");
    std::string name = "gpus-per-node";
    if (const auto gres = value_of(options, "gres"); gres && gres->starts_with("gpu:")) {
        name = "gres";
        text = gres->substr(4);
    }
    if (text.empty()) return;
    check(matches(text, "([A-Za-z][A-Za-z0-9._-]*:)?[0-9]{1,6}"),
          [&] { return unreadable(name, text, "a number, or TYPE:NUMBER"); });
    const auto colon = text.find(':');
    part.gpu_type = colon == text.npos ? "" : text.substr(0, colon);
    part.node_gpus = *parse_integer(colon == text.npos ? text : text.substr(colon + 1));
}

void read_memory(const SbatchOptions& options, JobPart& part) {
    const auto text = value_of(options, "mem");
    if (!text) return;
    check(matches(*text, "[0-9]{1,12}[KMGTkmgt]?"),
          [&] { return unreadable("mem", *text, "megabytes, or with K, M, G or T, such as 32G"); });
    const bool has_unit = std::isalpha(static_cast<unsigned char>(text->back()));
    const std::string number = has_unit ? text->substr(0, text->size() - 1) : *text;
    const std::string units = "kmgt";
    const auto unit = units.find(
        has_unit ? static_cast<char>(std::tolower(static_cast<unsigned char>(text->back()))) : 'm');
    constexpr std::int64_t megabytes[] = {0, 1, 1024, 1024 * 1024};
    const std::int64_t count = *parse_integer(number);
    part.node_memory_mb = unit == 0 ? (count + 1023) / 1024 : count * megabytes[unit];
}

bool is_endless(std::string text) {
    for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return text == "UNLIMITED" || text == "INFINITE" || text == "-1";
}

std::optional<std::int64_t> time_in(const SbatchOptions& options) {
    const auto text = value_of(options, "time");
    if (!text) return std::nullopt;
    if (is_endless(*text)) return endless_s;
    const auto seconds = parse_slurm_time(*text);
    if (seconds && *seconds == 0) return endless_s;  // as sbatch reads it
    check(seconds.has_value(), [&] {
        return Error("E526",
                     fmt::format("--time is '{}'", printable(*text)),
                     "SLURM does not know this form of time",
                     "write MINUTES, HH:MM:SS, D-HH:MM:SS or UNLIMITED");
    });
    return seconds;
}

std::vector<std::string> hosts_in(const SbatchOptions& options, const std::string& name) {
    const auto text = value_of(options, name);
    if (!text) return {};
    const auto hosts = expand_hosts(*text);
    check(hosts.has_value(),
          [&] { return unreadable(name, *text, "names of nodes, such as node[1-4,7]"); });
    return *hosts;
}

JobPart read_part(const SbatchOptions& options) {
    for (const SbatchOption& option : options) check_characters(option);
    JobPart part;
    if (const auto text = value_of(options, "partition")) {
        part.partitions = split(*text, ',');
        for (const std::string& name : part.partitions) name_in({{"partition", name}}, "partition");
    }
    read_nodes(options, part);
    part.segment = whole_in(options, "segment");
    part.tasks = whole_in(options, "ntasks");
    part.node_tasks = whole_in(options, "ntasks-per-node");
    part.task_cpus = whole_in(options, "cpus-per-task").value_or(1);
    part.takes_whole_nodes = value_of(options, "exclusive").has_value();
    read_gpus(options, part);
    read_memory(options, part);
    part.seconds = time_in(options);
    part.constraint = value_of(options, "constraint").value_or("");
    part.excluded = hosts_in(options, "exclude");
    part.required = hosts_in(options, "nodelist");
    return part;
}

std::optional<std::int64_t> last_task_of(const SbatchOptions& options) {
    const auto text = value_of(options, "array");
    if (!text) return std::nullopt;
    const std::string item = "[0-9]{1,9}(-[0-9]{1,9}(:[1-9][0-9]{0,8})?)?";
    check(matches(*text, item + "(," + item + ")*(%[1-9][0-9]{0,8})?"),
          [&] { return unreadable("array", *text, "0-7, 0-7%2 (two at a time) or 1,3,5"); });
    std::int64_t last = 0;
    for (const std::string& range : split(text->substr(0, text->find('%')), ',')) {
        const auto ends = split(range.substr(0, range.find(':')), '-');
        const std::int64_t first = *parse_integer(ends.front()), end = *parse_integer(ends.back());
        check(first <= end, [&] { return unreadable("array", *text, "FIRST-LAST"); });
        last = std::max(last, end);
    }
    return last;
}

std::vector<AwaitedJob> awaited_jobs_of(const SbatchOptions& options) {
    const auto text = value_of(options, "dependency");
    if (!text) return {};
    const std::string job = ":[0-9]{1,10}(_([0-9]{1,9}|\\*))?";
    const std::string item = "(singleton|after(" + job + "(\\+[0-9]{1,9})?)+|(afterany|afterok|" +
                             "afternotok|aftercorr|afterburstbuffer)(" + job + ")+)";
    const char separator = text->find('?') == text->npos ? ',' : '?';
    const std::string next = std::string(separator == '?' ? "\\?" : ",") + item;
    check(matches(*text, item + "(" + next + ")*"), [&] {
        return unreadable(
            "dependency",
            *text,
            "afterok:4711, after:4711+5, afterany:4711:4712 or singleton, with commas "
            "for all of several and '?' for any");
    });
    std::vector<AwaitedJob> jobs;
    for (const std::string& condition : split(*text, separator)) {
        const auto words = split(condition, ':');
        for (std::size_t i = 1; i < words.size(); ++i)
            jobs.push_back({words[0], words[i].substr(0, words[i].find_first_of("_+"))});
    }
    // Any of them will do: what need not be waited for decides nothing.
    if (separator == '?' && text->find("singleton") != text->npos) jobs.clear();
    return jobs;
}

std::map<std::string, std::int64_t> licences_of(const SbatchOptions& options) {
    const auto text = value_of(options, "licenses");
    if (!text) return {};
    const std::string item = "[A-Za-z0-9][A-Za-z0-9._@/-]{0,127}(:[0-9]{1,9})?";
    check(matches(*text, item + "(," + item + ")*"),
          [&] { return unreadable("licenses", *text, "NAME or NAME:COUNT, with commas"); });
    std::map<std::string, std::int64_t> counts;
    for (const std::string& licence : split(*text, ',')) {
        const auto words = split(licence, ':');
        counts[words[0]] += words.size() > 1 ? *parse_integer(words[1]) : 1;
    }
    return counts;
}

}  // namespace

std::int64_t JobPart::ranks_per_node() const {
    if (node_tasks) return *node_tasks;
    return tasks ? (*tasks + node_count() - 1) / node_count() : 1;
}

JobRequest read_request(const std::vector<SbatchOptions>& parts) {
    JobRequest request;
    for (const SbatchOptions& options : parts) request.parts.push_back(read_part(options));
    const SbatchOptions& first = parts.front();
    request.job_name = name_in(first, "job-name");
    request.account = name_in(first, "account");
    request.qos = name_in(first, "qos");
    request.reservation = name_in(first, "reservation");
    request.licences = licences_of(first);
    request.last_task = last_task_of(first);
    request.awaited_jobs = awaited_jobs_of(first);
    request.awaits_any = value_of(first, "dependency").value_or("").find('?') != std::string::npos;
    return request;
}

}  // namespace lockstep
