// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/launch_facts.hpp"
#include "lockstep/comm/agree.hpp"
#include "lockstep/core/foreign_end.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/process.hpp"
#include "lockstep/core/signals.hpp"
#include "lockstep/launch/live_placement.hpp"
#include "lockstep/launch/mpirun.hpp"
#include "lockstep/launch/start_watch.hpp"

#include "command.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

namespace lockstep {
namespace {

// A user's own program trains its own model by default.
void offer_model(const std::string& model, OptionTable& table) {
    for (OptionSection& section : table)
        for (Option& option : section.options) {
            if (option.name != "model") continue;
            option.assign({model, "default"});
            option.default_value = model;
            option.help = fmt::format("{}, or {}", model, option.help);
        }
}

std::vector<Command> commands_of(const Program& program) {
    auto commands = all_commands();
    if (program.model.empty()) return commands;
    std::erase_if(commands, [](const Command& command) { return command.is_about_lockstep; });
    for (Command& command : commands) {
        command.usage.replace(0, Program().name.size(), program.name);
        offer_model(program.model, command.table);
    }
    return commands;
}

std::string program_help(const std::vector<Command>& commands, const std::string& program) {
    std::string text = fmt::format(
        "Lockstep trains a LibTorch model on any number of MPI ranks and gives the same model,\n"
        "bit for bit, however many there are.\n\nusage: {} COMMAND [options]\n\n",
        program);
    for (const Command& command : commands)
        if (!command.is_hidden) text += fmt::format("  {:<14} {}\n", command.name, command.summary);
    return text + fmt::format("\n'{} COMMAND --help' teaches each of them. First: {}.\n",
                              program,
                              program == Program().name ? "scripts/quickstart" : "docs/api.md");
}

// The commands of a group such as "data"; "" if there is none of that name.
std::string group_help(const std::vector<Command>& commands, const std::string& group) {
    std::string text;
    for (const Command& command : commands)
        if (command.name.starts_with(group + " "))
            text += fmt::format("  {:<14} {}\n", command.name, command.summary);
    return text.empty() ? text
                        : fmt::format(
                              "usage: lockstep {0} COMMAND [options]\n\n{1}\n"
                              "'lockstep {0} COMMAND --help' teaches each of them.\n",
                              group,
                              text);
}

bool is_help(const std::string& word) {
    return word == "--help" || word == "-h" || word == "help";
}

// The command whose name is the longest beginning of `words`.
const Command* find_command(const std::vector<Command>& commands,
                            const std::vector<std::string>& words,
                            std::size_t& used) {
    for (used = 2; used >= 1; --used) {
        if (words.size() < used) continue;
        const std::string name = used == 2 ? words[0] + " " + words[1] : words[0];
        const auto found = std::ranges::find(commands, name, &Command::name);
        if (found != commands.end()) return &*found;
    }
    return nullptr;
}

// A command of earlier versions, or one that people look for in its group.
constexpr std::pair<const char*, const char*> gone_commands[] = {{"data look", "data inspect"},
                                                                 {"ckpt export", "export"},
                                                                 {"resume", "train --resume"},
                                                                 {"ledger", "data ledger"}};

Error unknown_command(const std::vector<Command>& commands, const std::vector<std::string>& words) {
    std::vector<std::string> names;
    bool is_group = false;
    for (const Command& command : commands) {
        if (!command.is_hidden) names.push_back(command.name);
        is_group = is_group || command.name.starts_with(words[0] + " ");
    }
    const std::string word = is_group && words.size() > 1 ? words[0] + " " + words[1] : words[0];
    for (const auto& [gone, instead] : gone_commands)
        if (word == gone)
            return Error("E101",
                         fmt::format("unknown command '{}'", word),
                         fmt::format("'lockstep {}' does it", instead),
                         fmt::format("lockstep {}", instead));
    return Error("E101",
                 fmt::format("unknown command '{}'", printable(word)),
                 is_group ? "this group of commands needs a second word" : "",
                 did_you_mean(word, names, "see 'lockstep --help'"));
}

void check_positionals(const Command& command, const std::vector<std::string>& given) {
    check(given.size() >= command.positionals,
          [&] { return Error("E105", "an argument is missing", "", "usage: " + command.usage); });
    const std::size_t most = command.positionals + command.optional_positionals;
    check(given.size() <= most, [&] {
        return Error("E101",
                     fmt::format("unexpected argument '{}'", printable(given[most])),
                     "",
                     "usage: " + command.usage);
    });
}

// Takes what follows the first "--" away from `words`.
std::vector<std::string> split_off_job_words(std::vector<std::string>& words) {
    const auto mark = std::ranges::find(words, "--");
    if (mark == words.end()) return {};
    std::vector<std::string> job_words(mark + 1, words.end());
    words.erase(mark, words.end());
    return job_words;
}

// Several ranks: everything that can fail before ranks talk fails on all of them with one message.
struct Prepared {
    std::optional<Command> chosen{};
    Invocation call{};
    std::string help{};
};

Prepared prepare(const std::vector<std::string>& words, const Program& program) {
    const auto commands = commands_of(program);
    if (words.empty() || is_help(words[0])) return {.help = program_help(commands, program.name)};
    std::size_t used = 0;
    const Command* command = find_command(commands, words, used);
    if (command == nullptr && words[0] == "--version") return prepare({"version"}, program);
    if (command == nullptr && words.size() == 2 && is_help(words[1]))
        if (auto help = group_help(commands, words[0]); !help.empty()) return {.help = help};
    if (command == nullptr) throw unknown_command(commands, words);
    std::vector<std::string> rest(words.begin() + static_cast<std::ptrdiff_t>(used), words.end());
    std::vector<std::string> job_words;
    if (command->takes_job_words) job_words = split_off_job_words(rest);
    const ParsedLine line = parse_line(rest, command->table);
    if (line.wants_help)
        return {.help = fmt::format("{}\n\nusage: {}\n\n{}{}",
                                    command->summary,
                                    command->usage,
                                    command->text,
                                    options_help(command->table))};
    check_positionals(*command, line.positionals);
    std::vector<Config> standing = values_of_run(command->table, line, Environment());
    std::ranges::move(standing_values(*command, commands, Environment()),
                      std::back_inserter(standing));
    return {*command,
            {words,
             line.positionals,
             job_words,
             resolve_options(command->table, line, Environment(), standing)}};
}

// A rank's own failure: lower ranks speak first, and the first to speak ends all.
[[noreturn]] void fail_alone(const Communicator& ranks, const Error& error) {
    std::this_thread::sleep_for(std::chrono::milliseconds(std::min(20 * ranks.rank(), 1000)));
    const std::string text =
        error.text(fmt::format("rank {} on {}", ranks.rank(), host_name())) + "\n";
    write_error(text);
    ranks.abort(static_cast<int>(error.exit_code()));
}

void say_error(const std::string& text) {
    show_live("");
    write_error(text + "\n");
}

// Until a run's own log is open. mpirun gives ranks a terminal of its own making: only who started
// it knows whether a person is looking.
LogTarget first_log_target(const Communicator& ranks) {
    LogTarget target{.rank = ranks.rank(), .world_size = ranks.size()};
    target.shows_live = !launched_by_mpi() || Environment().text(live_variable).has_value();
    return target;
}

bool is_train(const std::vector<std::string>& words) {
    return !words.empty() && words[0] == "train";
}

// Ranks of these are bound, and carry LibTorch.
bool computes(const std::vector<std::string>& words) {
    return is_train(words) || (!words.empty() && (words[0] == "eval" || words[0] == "predict"));
}

// Reports an error of a single rank.
int fail(const std::vector<std::string>& words, const ProcessContext& process, const Error& error) {
    if (is_train(words)) note_rank_end(error);
    if (process.ranks.size() > 1) fail_alone(process.ranks, error);
    say_error(error.text());
    return static_cast<int>(error.exit_code());
}

int run_guarded(const std::vector<std::string>& words, const ProcessContext& process) {
    try {
        std::optional<ForeignEnd> only_ours;
        if (process.program.train != nullptr)
            only_ours.emplace([&](const Error& error) { fail(words, process, error); });
        return run_command(words, process);
    } catch (const AgreedError& error) {
        if (error.speaks()) {
            if (is_train(words)) note_rank_end(error, error.ranks());
            say_error(error.text(error.ranks()));
        }
        return static_cast<int>(error.exit_code());
    } catch (const std::exception& exception) {
        return fail(words, process, as_error(exception));
    }
}

// OpenMP reads its variables when its library is loaded: a rank that is bound starts once more. So
// launchers of ours start ranks as `lockstep`, which loads no LibTorch and ends here as well. It
// does not ask drivers of GPUs for what it will not use.
void start_rank(const std::vector<std::string>& words, const ProcessContext& process) {
    const Program& program = process.program;
    if (program.train == nullptr)
        become_rank(rank_program(program), words, bind_rank(RankFacts([] {
                        return read_topology({"/", nullptr});
                    })));
    const auto variables = bind_rank(*process.facts);
    if (!variables.empty()) become_rank(rank_program(program), words, variables);
    release_first_thread();
}

// A rank outlives neither its parent nor the launcher above that, which ends what is left. Asked
// before MPI, whose start may wait for minutes where they are gone: an orphan's parent is another
// then.
void die_with_launch() {
    if (!launched_by_mpi()) return;
    die_with_parent(::getppid());
    const auto launcher = Environment().integer(launcher_variable);
    if (launcher && ::kill(static_cast<pid_t>(*launcher), 0) != 0 && errno == ESRCH) ::_exit(137);
}

constexpr std::uint64_t mpi_addresses = std::uint64_t{256} << 20;

// Open MPI maps segments and starts threads, for whose heaps glibc reserves 64 MiB each. Where it
// gets none it ends the process without a word about memory, or waits for ever.
void check_room_for_mpi() {
    rlimit addresses{};
    ::getrlimit(RLIMIT_AS, &addresses);
    if (addresses.rlim_cur == RLIM_INFINITY) return;
    std::uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const std::uint64_t used = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    check(used + mpi_addresses <= addresses.rlim_cur,
          "E225",
          "MPI does not start with so little memory",
          fmt::format("'ulimit -v' leaves this process {} of addresses, of which {} are in "
                      "use; MPI takes up to {}",
                      bytes_text(addresses.rlim_cur),
                      bytes_text(used),
                      bytes_text(mpi_addresses)),
          "raise the limit: ulimit -v unlimited");
}

// From here on all ranks have heard of each other.
Communicator join_ranks(std::optional<MpiSession>& session) {
    if (!launched_by_mpi()) return {};
    check_room_for_mpi();
    StartWatch watch(start_limits(Environment()));
    session.emplace();
    watch.note_init();
    const Communicator world = Communicator::world();
    world.barrier();
    return world;
}

// A file that takes the place of a closed stdout would have all that is printed written into it.
void keep_standard_streams() {
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
        if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", O_RDWR);
}

// Also where the launcher's variables cannot be read, which may be what is to be said.
bool is_first_of_node() {
    try {
        return read_launch_facts(Environment()).local_rank.value_or(0) == 0;
    } catch (const Error&) {
        return true;
    }
}

// Ranks that a launcher of ours has started find them as it did, and it has warned. So has
// `lockstep` before it became lockstep-train.
void warn_of_unread_variables(const Program& program) {
    const Environment environment;
    const bool is_next = program.train != nullptr && program.model.empty() && !launched_by_mpi();
    if (is_next || environment.text("LOCKSTEP_RANK_ENDS") ||
        environment.names_with_prefix("LOCKSTEP_").empty())
        return;
    for (const auto& [name, meant] : unread_variables(all_commands(), environment))
        once(Level::warn, "{} is no variable of Lockstep: did you mean {}?", name, meant);
}

}  // namespace

fs::path rank_program(const Program& program) {
    const fs::path self = this_executable();
    return program.train == nullptr ? self.parent_path() / "lockstep-train" : self;
}

// Before MPI is up ranks cannot agree on who speaks: the first of each node does. The others let
// it, for the first to end has the launcher end all.
int fail_to_start(const std::exception& reason) {
    const Error error = as_error(reason);
    note_rank_end(error);
    if (is_first_of_node())
        say_error(error.text());
    else
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return static_cast<int>(error.exit_code());
}

int run_command(const std::vector<std::string>& words, const ProcessContext& process) {
    Prepared prepared = agree(process.ranks, [&] { return prepare(words, process.program); });
    prepared.call.process = process;
    if (!prepared.chosen) {
        if (process.ranks.is_root()) print_once(prepared.help);
        return 0;
    }
    warn_of_unread_variables(process.program);
    const int code = prepared.chosen->run(prepared.call);
    if (!computes(words)) check_printed();
    return code;
}

int end_without_room() noexcept {
    rlimit limit{};
    ::getrlimit(RLIMIT_AS, &limit);
    std::array<char, 256> text{};
    const int bytes =
        std::snprintf(text.data(),
                      text.size(),
                      "lockstep: error E225: there is no memory to start with\n"
                      "  why: 'ulimit -v' leaves %llu KiB\n  fix: ulimit -v unlimited\n",
                      static_cast<unsigned long long>(limit.rlim_cur >> 10));
    const ssize_t wrote = ::write(STDERR_FILENO, text.data(), static_cast<std::size_t>(bytes));
    static_cast<void>(wrote);  // nobody reads it
    return static_cast<int>(ExitCode::config);
}

int run_program(const std::vector<std::string>& words, const Program& program) {
    keep_standard_streams();
    outlive_file_limits();  // what is written says which file has no more room
    const auto facts = std::make_shared<RankFacts>();
    if (is_train(words)) {
        hold_stop_signals();  // none is lost before training takes them
        outlive_readers();    // output that nobody reads is no reason to stop
    }
    die_with_launch();
    const bool is_computing_rank = launched_by_mpi() && computes(words);
    std::optional<MpiSession> session;
    Communicator ranks;
    try {
        if (is_computing_rank)
            start_rank(words, {program, {}, facts});
        else if (computes(words))
            release_first_thread();
        ranks = join_ranks(session);
    } catch (const std::exception& exception) {
        if (is_computing_rank) return fail_to_start(exception);
        say_error(as_error(exception).text());
        return static_cast<int>(as_error(exception).exit_code());
    }
    const ProcessContext process{program, ranks, facts};
    open_log(first_log_target(process.ranks));
    return run_guarded(words, process);
}

}  // namespace lockstep
