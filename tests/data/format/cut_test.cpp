// SPDX-License-Identifier: Apache-2.0

#include "lockstep/data/dataset_index.hpp"

#include "support/unit.hpp"

#include <numeric>

namespace lockstep {
namespace {

// Number of the element of a sample of `size` at place `number` of a box of `shape` at `begin`;
// nothing beyond the sample.
std::optional<std::uint64_t> element_of_sample(const std::vector<std::uint64_t>& size,
                                               const std::vector<std::uint64_t>& shape,
                                               const std::vector<std::uint64_t>& begin,
                                               std::uint64_t number) {
    std::uint64_t element = 0, step = 1;
    for (std::size_t d = size.size(); d-- > 0; number /= shape[d], step *= size[d]) {
        const std::uint64_t at = begin[d] + number % shape[d];
        if (at >= size[d]) return {};
        element += at * step;
    }
    return element;
}

// Cuts numbered samples into chunks with padding of 255s, one element after the other, and puts
// them together again.
template <class Element>
void expect_whole_again(const Cut& cut, std::uint64_t rows) {
    const std::uint64_t sample = std::accumulate(
        cut.sample.begin(), cut.sample.end(), std::uint64_t{1}, std::multiplies<>{});
    std::vector<Element> wanted(rows * sample), got(wanted.size());
    std::iota(wanted.begin(), wanted.end(), Element{1});
    std::vector<std::uint64_t> begin(cut.sample.size(), 0);
    for (std::uint64_t tile = 0; tile < cut.tiles(); ++tile) {
        const std::uint64_t places = cut.chunk_elements();
        std::vector<Element> chunk(rows * places, static_cast<Element>(-1));
        for (std::uint64_t i = 0; i < chunk.size(); ++i)
            if (const auto at = element_of_sample(cut.sample, cut.chunk, begin, i % places))
                chunk[i] = wanted[i / places * sample + *at];
        const auto values = without_padding(
            cut, tile, sizeof(Element), rows, std::as_writable_bytes(std::span(chunk)));
        EXPECT_EQ(values.size(), rows * cut.elements_of(tile) * sizeof(Element));
        put_tile(cut, tile, sizeof(Element), values, std::as_writable_bytes(std::span(got)));
        for (std::size_t d = begin.size(); d-- > 0;) {
            begin[d] += cut.chunk[d];
            if (begin[d] < cut.sample[d]) break;
            begin[d] = 0;
        }
    }
    EXPECT_THAT(got, ElementsAreArray(wanted));
}

TEST(Cut, PutsTilesOfAnyShapeTogether) {
    for (const Cut& cut : {Cut{{7}, {3}},
                           Cut{{7}, {9}},
                           Cut{{5, 6}, {3, 4}},
                           Cut{{5, 6}, {5, 4}},
                           Cut{{5, 6}, {2, 6}},
                           Cut{{5, 6}, {1, 1}},
                           Cut{{3, 8, 8}, {1, 4, 4}},
                           Cut{{8, 8, 3}, {4, 4, 1}},
                           Cut{{8, 8, 3}, {3, 8, 2}},
                           Cut{{3, 4, 5, 6}, {2, 4, 3, 6}},
                           Cut{{1, 1, 33}, {1, 1, 16}}})
        for (const std::uint64_t rows : {1, 2, 5}) {
            expect_whole_again<std::uint8_t>(cut, rows);
            expect_whole_again<std::uint32_t>(cut, rows);
            expect_whole_again<std::uint64_t>(cut, rows);
        }
}

TEST(Cut, CountsTilesAndIsSoundIfNothingIsEmptyOrOverflows) {
    const Cut cut{{5, 6}, {3, 4}};
    EXPECT_EQ(cut.tiles(), 4u);
    EXPECT_EQ(cut.chunk_elements(), 12u);
    std::vector<std::uint64_t> elements;
    for (std::uint64_t tile = 0; tile < 4; ++tile) elements.push_back(cut.elements_of(tile));
    EXPECT_THAT(elements, ElementsAre(12, 6, 8, 4));
    EXPECT_TRUE((Cut{{5, 6}, {3, 4}}.is_sound()));
    EXPECT_FALSE((Cut{{}, {}}.is_sound()));
    EXPECT_FALSE((Cut{{5, 6}, {3}}.is_sound()));
    EXPECT_FALSE((Cut{{5, 0}, {3, 4}}.is_sound()));
    EXPECT_FALSE((Cut{{5, 6}, {0, 4}}.is_sound()));
    EXPECT_FALSE((Cut{{1u << 30, 1u << 30}, {1, 1}}.is_sound()));
    EXPECT_FALSE((Cut{{5, 6}, {~std::uint64_t{0}, 2}}.is_sound()));
}

}  // namespace
}  // namespace lockstep
