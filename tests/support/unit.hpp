// SPDX-License-Identifier: Apache-2.0
// What most unit tests use, by its plain name: GoogleMock's matchers, errors that are thrown, texts
// that an output has, and a folder of a test's own.
#pragma once

#include "support/caught.hpp"
#include "support/ends.hpp"
#include "support/temp_dir.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {

using test::caught;
using test::caught_code;
using test::caught_text;
using test::content_of;
using test::has;
using test::TempDir;
using testing::AllOf;
using testing::AnyOf;
using testing::Contains;
using testing::ContainsRegex;
using testing::Each;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::EndsWith;
using testing::Ge;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Le;
using testing::MatchesRegex;
using testing::Not;
using testing::Optional;
using testing::Pair;
using testing::SizeIs;
using testing::StartsWith;
using testing::UnorderedElementsAre;

/// A test with a folder of its own.
class InFolder : public testing::Test {
  protected:
    TempDir folder_;
};

}  // namespace lockstep
