// SPDX-License-Identifier: Apache-2.0
#include "lockstep/app/run_program.hpp"

#include "lockstep/core/log.hpp"

#include "command.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

// A run knows its model by this name alone.
void check_model_name(const std::string& model) {
    const auto taken = model_names();
    check(!model.empty() && std::ranges::find(taken, model) == taken.end(),
          "E103",
          fmt::format("the program's own model is called '{}'", printable(model)),
          fmt::format("it needs a name other than {}", fmt::join(taken, ", ")),
          "give run_program() another name");
}

}  // namespace

int run_program(int argc, const char* const* argv, const std::string& model, ModelFactory factory) {
    const std::vector<std::string> words(argv, argv + argc);
    try {
        check_model_name(model);
        register_model(model, std::move(factory));
        return run_program(std::vector<std::string>(words.begin() + 1, words.end()),
                           {.train = train_model,
                            .infer = infer,
                            .sample = sample_tokens,
                            .profile = profile_model,
                            .prune = prune_run,
                            .export_script = export_script,
                            .model = model,
                            .name = fs::path(words.front()).filename()});
    } catch (const std::exception& exception) {
        return fail_to_start(exception);
    }
}

}  // namespace lockstep
