// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/launch/supervise.hpp"

#include "command.hpp"
#include "exit_meanings.hpp"

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstring>

#include <fmt/format.h>

namespace lockstep {
namespace {

std::string errors_that_exit_with(int code) {
    std::string names;
    for (const ErrorEntry& entry : error_catalog())
        if (static_cast<int>(entry.exit_code) == code) names += fmt::format(" {}", entry.code);
    return names.empty() ? names : "its errors:" + names + "\n";
}

int explain_exit(const std::string& word, std::int64_t code) {
    const auto known =
        std::ranges::find(exit_meanings, static_cast<ExitCode>(code), &ExitMeaning::code);
    if (known != std::end(exit_meanings)) {
        print_once(fmt::format("exit code {}: {}\nanother start: {}\n{}",
                               code,
                               known->meaning,
                               known->next_start,
                               errors_that_exit_with(static_cast<int>(code))));
        return 0;
    }
    const int number = code >= 0 && code <= 255 ? static_cast<int>(code) : 0;
    if (const auto meaning = launcher_code(number); !meaning.empty()) {
        print_once(fmt::format("exit code {}: {}\n", code, meaning));
        return 0;
    }
    const int signal = number - 128;
    check(signal > 0 && signal <= SIGRTMAX, [&] {
        return Error("E101",
                     fmt::format("exit code {} is not one of Lockstep's", printable(word)),
                     "a shell gives 127 if it finds no program, and 126 if it may not start it",
                     "the lines before it say more, or 'lockstep diagnose RUN'");
    });
    const std::string_view fault = launch_fault(number);
    print_once(fmt::format(
        "exit code {}: killed by signal {} ({})\nanother start: goes on from the newest "
        "checkpoint\n{}",
        code,
        signal,
        ::strsignal(signal),
        fault.empty()
            ? ""
            : fmt::format("or, from mpirun of Open MPI 4.1 before ranks begin: {}\n", fault)));
    return 0;
}

int explain(const std::string& word) {
    if (const auto number = parse_integer(word)) return explain_exit(word, *number);
    std::string code = word;
    for (char& c : code) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    const ErrorEntry* entry = find_error(code);
    check(entry != nullptr, [&] {
        return Error("E101",
                     fmt::format("no error has code '{}'", printable(code)),
                     "",
                     "give a code as error messages show it, for example E204, or an exit code");
    });
    print_once(fmt::format("{}: {} (exit code {})\n\n{}\n",
                           entry->code,
                           entry->title,
                           static_cast<int>(entry->exit_code),
                           entry->text));
    return 0;
}

}  // namespace

Command explain_command() {
    return {.name = "explain",
            .summary = "explain an error code, or an exit code",
            .usage = "lockstep explain CODE",
            .text =
                "The long text behind a message such as 'error E204: ...', or what it means "
                "that a\ncommand ended with 75.\n",
            .positionals = 1,
            .run = [](const Invocation& call) { return explain(call.positionals[0]); }};
}

}  // namespace lockstep
