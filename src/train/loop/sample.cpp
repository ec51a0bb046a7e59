// SPDX-License-Identifier: Apache-2.0
// Tested: e2e/tasks_test.cpp.

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/run/progress.hpp"
#include "lockstep/train/infer.hpp"

#include "loop/trained_run.hpp"

#include <algorithm>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/types.h>

namespace lockstep {
namespace {

using Tokens = std::vector<std::int64_t>;

// Bytes of a text, or numbers with blanks between.
Tokens tokens_of(const std::string& prompt, const Field& field) {
    Tokens tokens;
    const auto fail = [&](const std::string& what) {
        return Error(
            "E103",
            fmt::format("--prompt has the token {}", what),
            fmt::format("the run's tokens are numbers from 0 to {}", field.classes() - 1),
            field.type == ElementType::u8 ? "give other text" : "give numbers with blanks between");
    };
    if (field.type == ElementType::u8)
        for (const char byte : prompt) tokens.push_back(static_cast<unsigned char>(byte));
    else
        for (const std::string& word : split(prompt, ' ')) {
            const auto number = parse_integer(word);
            check(number.has_value(), [&] { return fail(fmt::format("'{}'", printable(word))); });
            tokens.push_back(*number);
        }
    for (const std::int64_t token : tokens)
        check(token >= 0 && token < field.classes(), [&] { return fail(std::to_string(token)); });
    return tokens;
}

std::string text_of(const Tokens& tokens, const Field& field) {
    std::string text;
    for (const std::int64_t token : tokens)
        if (field.type == ElementType::u8)
            text += static_cast<char>(token);
        else
            text += fmt::format("{}{}", text.empty() ? "" : " ", token);
    return text;
}

// The token of share `at` of the probability of all, or of the `top` most probable ones.
std::int64_t chosen(const at::Tensor& logits, const SampleSettings& settings, double at) {
    if (settings.temperature == 0) return logits.argmax().item<std::int64_t>();
    const std::int64_t kept =
        settings.top > 0 ? std::min(settings.top, logits.numel()) : logits.numel();
    const auto [values, places] = (logits / settings.temperature).topk(kept);
    const at::Tensor sums = values.softmax(0).cumsum(0);
    const std::int64_t place = sums.le(at * sums[-1].item<double>()).sum().item<std::int64_t>();
    return places[std::min(place, kept - 1)].item<std::int64_t>();
}

// The newest tokens that the model's context holds. A file's may be exported for whole contexts
// alone: what follows a token changes nothing before it.
at::Tensor input_of(const Tokens& tokens, const TrainedRun& trained) {
    const std::int64_t context = trained.shape.width;
    const std::int64_t count = std::min<std::int64_t>(std::ssize(tokens), context);
    const bool is_file = source_of(trained.run.settings.model.name) != ModelSource::registered;
    at::Tensor input = torch::zeros({1, is_file ? context : count}, torch::kInt64);
    std::copy(tokens.end() - count, tokens.end(), input.data_ptr<std::int64_t>());
    return input;
}

}  // namespace

std::string sample_tokens(const SampleSettings& settings, const Communicator& ranks) {
    const TrainedRun trained = open_trained_run(settings.from, ranks);
    check(trained.run.settings.task.kind == TaskKind::next_token, [&] {
        return Error("E106",
                     fmt::format("'{}' predicts no tokens", settings.from.run.string()),
                     "sampling is for runs of --task next-token",
                     "use 'lockstep predict'");
    });
    const DatasetIndex& data = *trained.learned_from;
    const Field& field = data.fields()[data.field_position("tokens")];
    Tokens tokens = tokens_of(settings.prompt, field);
    const at::NoGradGuard no_gradients;
    trained.model->set_mode(ModelMode::evaluate);
    CounterRandom random(Purpose::sampling, {static_cast<std::uint64_t>(settings.seed)});
    Progress progress("sampling", static_cast<std::uint64_t>(settings.tokens));
    for (std::int64_t i = 0; i < settings.tokens; ++i) {
        const std::int64_t last =
            std::min<std::int64_t>(std::ssize(tokens), trained.shape.width) - 1;
        const at::Tensor logits =
            only(trained.model->forward({{"tokens", input_of(tokens, trained)}}));
        tokens.push_back(chosen(logits[0][last].to(torch::kFloat64), settings, random.uniform()));
        progress.update(static_cast<std::uint64_t>(i + 1));
    }
    return text_of(tokens, field);
}

}  // namespace lockstep
