// SPDX-License-Identifier: Apache-2.0

#include "lockstep/core/error.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/data/measure_io.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace lockstep {
namespace {

constexpr std::uint64_t distinct_bytes = 32u << 20;
constexpr std::uint64_t seed = 0x10b;

/// A smooth brightness over the unit square, partly below black.
struct Waves {
    explicit Waves(CounterRandom& random) {
        for (double& value : numbers) value = random.uniform();
    }
    double at(double y, double x) const {
        const auto& n = numbers;
        return 190 * std::sin(6 * n[0] + (1 + 4 * n[1]) * x) *
                   std::cos(6 * n[2] + (1 + 4 * n[3]) * y) +
               70 * n[4];
    }
    std::array<double, 5> numbers{};
};

void draw(std::span<std::byte> image,
          const std::vector<std::int64_t>& shape,
          std::uint64_t number) {
    CounterRandom random(Purpose::test, {seed, number});
    const auto height = static_cast<double>(shape[1]), width = static_cast<double>(shape[2]);
    auto pixel = image.begin();
    for (std::int64_t channel = 0; channel < shape[0]; ++channel) {
        const Waves waves(random);
        for (std::int64_t y = 0; y < shape[1]; ++y)
            for (std::int64_t x = 0; x < shape[2]; ++x, ++pixel) {
                const double light =
                    waves.at(static_cast<double>(y) / height, static_cast<double>(x) / width);
                if (light <= 0) continue;
                const auto noise = static_cast<double>(random.below(24));
                *pixel = static_cast<std::byte>(std::min(255.0, light + noise));
            }
    }
}

class ScratchRows : public RowSource {
  public:
    explicit ScratchRows(const ScratchShape& shape)
        : samples_(shape.samples), classes_(static_cast<std::uint64_t>(shape.classes)) {
        expect(shape.image.size() == 3 && shape.classes > 0, "scratch images are CHW with classes");
        fields_ = {
            {.name = "images", .type = ElementType::u8, .shape = shape.image, .layout = "CHW"},
            {.name = "labels", .type = ElementType::i64, .shape = {}}};
        row_bytes_ = fields_[0].bytes_per_sample();
        distinct_ = std::clamp<std::uint64_t>(distinct_bytes / row_bytes_, 1, samples_);
        images_.resize(distinct_ * row_bytes_);
        for (std::uint64_t i = 0; i < distinct_; ++i)
            draw(std::span(images_).subspan(i * row_bytes_, row_bytes_), shape.image, i);
    }

    std::uint64_t samples() const override { return samples_; }
    const std::vector<Field>& fields() const override { return fields_; }
    void read(std::size_t field, std::uint64_t row, std::span<std::byte> out) const override {
        const auto label = static_cast<std::int64_t>(row % classes_);
        if (field == 0)
            std::ranges::copy(std::span(images_).subspan(row % distinct_ * row_bytes_, row_bytes_),
                              out.begin());
        else
            std::memcpy(out.data(), &label, sizeof label);
    }
    Hash128 fingerprint() const override { return hash128(std::span(std::as_const(images_))); }

  private:
    std::uint64_t samples_, classes_, row_bytes_ = 0, distinct_ = 0;
    std::vector<Field> fields_;
    std::vector<std::byte> images_;
};

}  // namespace

std::unique_ptr<RowSource> scratch_rows(const ScratchShape& shape) {
    return std::make_unique<ScratchRows>(shape);
}

}  // namespace lockstep
