// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/model.hpp"

#include "support/caught.hpp"

#include <gtest/gtest.h>
#include <torch/nn.h>

namespace lockstep {
namespace {

std::int64_t parameter_count(const Classifier& model) {
    std::int64_t count = 0;
    for (const auto& parameter : model.parameters()) count += parameter.numel();
    return count;
}

TEST(Cnn, HasTheBooksNumbersOfParameters) {
    EXPECT_EQ(parameter_count(*make_model({"cnn", true}, {1, 28, 28, 10}, 1)), 1'630'090);
    EXPECT_EQ(parameter_count(*make_model({"cnn", true}, {3, 32, 32, 10}, 1)), 2'122'186);
    EXPECT_EQ(parameter_count(*make_model({"cnn", false}, {1, 28, 28, 10}, 1)), 1'629'472);
}

TEST(Models, DependOnTheSeedOnly) {
    const auto a = make_model({"cnn", true}, {}, 5), b = make_model({"cnn", true}, {}, 5);
    const auto c = make_model({"cnn", true}, {}, 6);
    EXPECT_TRUE(a->parameters()[0].equal(b->parameters()[0]));
    EXPECT_FALSE(a->parameters()[0].equal(c->parameters()[0]));
}

TEST(Models, UnknownNameSuggestsTheNearest) {
    const Error error = test::error_of([] { make_model({"cmn", true}, {}, 1); });
    EXPECT_EQ(error.code(), "E103");
    EXPECT_EQ(error.fix(), "did you mean 'cnn'?");
}

TEST(Models, ImagesTooSmallForTheCnnAreRefused) {
    EXPECT_THROW(make_model({"cnn", true}, {1, 3, 28, 10}, 1), Error);
}

TEST(RegisterModel, AddsAUsersModel) {
    register_model("users-own", [](const ModelShape& shape, const ModelSettings& settings) {
        return make_model({"mlp", settings.bias}, shape, 3);
    });
    EXPECT_EQ(parameter_count(*make_model({"users-own", true}, {1, 2, 2, 10}, 1)),
              parameter_count(*make_model({"mlp", true}, {1, 2, 2, 10}, 1)));
}

}  // namespace
}  // namespace lockstep
