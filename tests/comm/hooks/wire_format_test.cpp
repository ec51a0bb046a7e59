// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/bucket_hook.hpp"

#include "support/caught.hpp"

#include <gtest/gtest.h>

namespace {

using namespace lockstep;

constexpr auto all_formats = {
    WireFormat::float32, WireFormat::bfloat16, WireFormat::float16, WireFormat::power_sgd};

TEST(WireFormat, IsFoundByItsName) {
    for (const WireFormat format : all_formats)
        EXPECT_EQ(wire_format_named(name_of(format)), format);
    EXPECT_EQ(wire_format_named("fp8"), std::nullopt);
    EXPECT_EQ(wire_format_named(""), std::nullopt);
}

TEST(WireFormat, IsRefusedInInvariantRunsUnlessItIsExact) {
    for (const WireFormat format : all_formats) {
        check_wire_format(format, Summation::plain);
        EXPECT_EQ(test::caught_code([&] { check_wire_format(format, Summation::tree); }),
                  format == WireFormat::float32 ? "" : "E641");
    }
    EXPECT_EQ(test::caught_text([] { check_wire_format(WireFormat::bfloat16, Summation::tree); }),
              "lockstep: error E641: gradients cannot travel as bf16 in an invariant run\n"
              "  why: lossy wire formats depend on the number of ranks\n"
              "  fix: use --plain with --wire bf16, or leave --wire f32");
}

}  // namespace
