// SPDX-License-Identifier: Apache-2.0
// lockstep-gpu-selftest: tests Lockstep's requirements of a GPU and of NCCL on this machine. It
// needs neither MPI nor LibTorch: it starts its ranks itself, all of them on the first GPU.
#include "lockstep/core/clock.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/process.hpp"

#include "nccl/cuda_api.hpp"
#include "selftest.hpp"

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <thread>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr int skipped = 77;
constexpr const char* gpu_variable = "LOCKSTEP_SELFTEST_GPU";  ///< PCI address for all ranks
constexpr double case_limit_s = 150;
constexpr std::array<std::size_t, 4> counts_of_sums = {1 << 20, 100000, 777, 1};
constexpr const char* usage =
    "usage: lockstep-gpu-selftest [--nccl-lib PATH]\n"
    "Selects the first GPU by its PCI address, and must refuse two ranks that do; tries the image\n"
    "transforms and exact norms on it, then the sums of training through NCCL with 1 to 4 ranks, "
    "and\n"
    "one rank that is killed.\n"
    "Exit code: 0 all is well, 1 something is not, 77 there is no GPU.\n";

struct Case {
    std::string name, mode;
    int ranks;
    int survivors;  ///< the first so many must succeed
};

/// Over the files of one folder, for processes of one machine that has no MPI. The folder is empty
/// at first, and this bootstrap's alone.
class FileBootstrap : public Bootstrap {
  public:
    FileBootstrap(fs::path folder, int rank, int size)
        : folder_(std::move(folder)), rank_(rank), size_(size) {}

    int rank() const override { return rank_; }
    int size() const override { return size_; }

    std::vector<std::optional<std::string>> gather_within(const std::string& bytes,
                                                          double deadline_s) override {
        const std::string kind = fmt::format("gather-{}", gathers_++);
        write_file_atomically(path_of(kind, rank_), bytes);
        std::vector<std::optional<std::string>> all(static_cast<std::size_t>(size_));
        const double end = now_s() + deadline_s;
        for (int rank = 0; rank < size_;) {
            if (fs::exists(path_of(kind, rank))) {
                all[static_cast<std::size_t>(rank)] = read_file(path_of(kind, rank));
                ++rank;
            } else if (now_s() < end) {
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            } else {
                ++rank;
            }
        }
        return all;
    }

    void announce(const std::string& text) override {
        write_file_atomically(path_of("notice", rank_), text);
    }

    std::optional<Notice> notice() override {
        for (int rank = 0; rank < size_; ++rank) {
            if (rank == rank_ || heard_.contains(rank)) continue;
            if (!fs::exists(path_of("notice", rank))) continue;
            heard_.insert(rank);
            return Notice{rank, read_file(path_of("notice", rank))};
        }
        return {};
    }

  private:
    fs::path path_of(const std::string& kind, int rank) const {
        return folder_ / fmt::format("{}.{}", kind, rank);
    }

    fs::path folder_;
    int rank_, size_;
    int gathers_ = 0;
    std::set<int> heard_;
};

RemovedFolder temporary_folder() {
    std::string name = fs::temp_directory_path() / "lockstep-gpu-XXXXXX";
    check(::mkdtemp(name.data()) != nullptr,
          [&] { return Error("E401", fmt::format("no temporary folder like '{}'", name)); });
    return RemovedFolder(name);
}

ProcessResult run_rank(const Case& test, int rank, const std::string& folder) {
    std::map<std::string, std::string> environment;
    if (test.mode != "selection" && test.ranks > 1)  // they are of one GPU
        environment = nccl_variables_of_sharing(rank, SharingReach::one_node);
    try {
        return run_process({this_executable(),
                            "--rank",
                            test.mode,
                            std::to_string(rank),
                            std::to_string(test.ranks),
                            folder},
                           environment,
                           case_limit_s);
    } catch (const Error& error) {
        return {1, error.text()};
    }
}

/// Returns true if it succeeded; prints the ranks' output.
bool run_case(const Case& test) {
    const RemovedFolder folder = temporary_folder();
    std::vector<ProcessResult> results(static_cast<std::size_t>(test.ranks));
    std::vector<std::thread> ranks;
    const double begin = now_s();
    for (int rank = 0; rank < test.ranks; ++rank)
        ranks.emplace_back([&, rank] {
            results[static_cast<std::size_t>(rank)] = run_rank(test, rank, folder.path());
        });
    for (std::thread& rank : ranks) rank.join();
    bool is_well = true;
    for (int rank = 0; rank < test.survivors; ++rank)
        is_well &= results[static_cast<std::size_t>(rank)].exit_code == 0;
    fmt::print(
        "{} {} ({})\n", is_well ? "ok    " : "FAILED", test.name, duration_text(now_s() - begin));
    for (int rank = 0; rank < (is_well ? 1 : test.ranks); ++rank) {
        const ProcessResult& result = results[static_cast<std::size_t>(rank)];
        fmt::print("  rank {} (exit code {}): {}\n", rank, result.exit_code, result.output);
    }
    std::fflush(stdout);
    return is_well;
}

/// This process only asks; its ranks are processes of their own.
std::string first_gpu() {
    const CudaLibrary cuda = load_cuda();
    CudaDeviceFacts facts;
    check_cuda(cuda.api, cuda.api.device_facts(0, &facts), "cudaGetDeviceProperties");
    return facts.pci;
}

int run_all() {
    if (const std::string missing = gpu_driver_fault(); !missing.empty()) {
        fmt::print("SKIPPED: no GPU here, neither transforms nor NCCL were tried: {}\n", missing);
        return skipped;
    }
    bool is_well = true;
    ::setenv(gpu_variable, first_gpu().c_str(), 1);
    for (const Case& test : {Case{"selection", "selection", 1, 1},
                             Case{"selection by 2 ranks", "selection", 2, 2},
                             Case{"transforms", "transforms", 1, 1},
                             Case{"norms", "norms", 1, 1},
                             Case{"1 rank", "sums", 1, 1},
                             Case{"2 ranks on one GPU", "sums", 2, 2},
                             Case{"3 ranks on one GPU", "sums", 3, 3},
                             Case{"4 ranks on one GPU", "sums", 4, 4},
                             Case{"1 of 2 ranks killed", "killed", 2, 1}})
        is_well &= run_case(test);
    return is_well ? 0 : 1;
}

int run_as_rank(const std::vector<std::string>& arguments) {
    if (arguments[1] == "transforms" || arguments[1] == "norms") {
        fmt::print("{}\n", arguments[1] == "norms" ? check_norms() : check_transforms());
        return 0;
    }
    FileBootstrap bootstrap(arguments[4], std::stoi(arguments[2]), std::stoi(arguments[3]));
    const PlannedGpu gpu{Environment().text(gpu_variable).value_or(""), ""};
    if (arguments[1] == "selection") {
        fmt::print("{}\n", check_selection(bootstrap, gpu));
        return 0;
    }
    const auto body = arguments[1] == "sums" ? check_sums : survive_a_killed_rank;
    fmt::print("{}\n", body(GpuRuntime::open(), bootstrap, counts_of_sums));
    std::fflush(stdout);
    // The rest of an aborted GPU's work is not waited for.
    if (arguments[1] == "killed") std::_Exit(0);
    return 0;
}

int run(const std::vector<std::string>& arguments) {
    if (arguments.size() == 5 && arguments[0] == "--rank") return run_as_rank(arguments);
    if (arguments.size() == 2 && arguments[0] == "--nccl-lib")
        ::setenv("LOCKSTEP_NCCL_LIB", arguments[1].c_str(), 1);
    else if (!arguments.empty()) {
        fmt::print("{}", usage);
        return arguments[0] == "--help" ? 0 : static_cast<int>(ExitCode::usage);
    }
    return run_all();
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
    try {
        return lockstep::run({argv + 1, argv + argc});
    } catch (const std::exception& error) {
        fmt::print("{}\n", lockstep::as_error(error).text());
        return 1;
    }
}
