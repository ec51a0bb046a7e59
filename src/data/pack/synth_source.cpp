// SPDX-License-Identifier: Apache-2.0

#include "lockstep/core/error.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/data/sources.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace lockstep {

namespace {

// The uses of random streams within one data set.
enum class Use : std::uint64_t {
    pattern,
    label,
    pixels,
    shapes,
    color,
    weights,
    features,
    chain = 100,
    tokens
};

constexpr std::uint32_t grid = 8;      // cells across a class's pattern
constexpr std::int32_t one = 1 << 15;  // 1.0 of features
constexpr std::uint64_t most_shapes = 4;
constexpr std::int32_t noise = 24;  // of a pixel, either way

std::uint8_t clamped(std::int32_t value) {
    return static_cast<std::uint8_t>(std::clamp(value, 0, 255));
}

class SynthSource : public RowSource {
  public:
    explicit SynthSource(const SynthOptions& options)
        : RowSource(options.samples), options_(options) {}

    Hash128 fingerprint() const override {
        return hash128(fmt::format("synthetic 1 {} {} {} {} {} {}",
                                   static_cast<int>(options_.kind),
                                   options_.seed,
                                   options_.first,
                                   options_.samples,
                                   options_.size,
                                   options_.classes));
    }

  protected:
    CounterRandom random(Use use, std::uint64_t a, std::uint64_t b = 0) const {
        return {Purpose::synthetic_data, {options_.seed, static_cast<std::uint64_t>(use), a, b}};
    }
    static std::span<std::uint8_t> bytes_out(std::span<std::byte> out) {
        return {reinterpret_cast<std::uint8_t*>(out.data()), out.size()};
    }
    Field images() const {
        return {.name = "images", .shape = {3, options_.size, options_.size}, .layout = "CHW"};
    }
    // Eight pixels of noise per random number.
    static void add_noise(std::span<std::uint8_t> pixels, CounterRandom random) {
        std::uint64_t bits = 0;
        for (std::size_t i = 0; i < pixels.size(); ++i) {
            if (i % 8 == 0) bits = random.next();
            const auto byte = static_cast<std::int32_t>(bits >> (i % 8 * 8) & 0xff);
            pixels[i] = clamped(pixels[i] + (byte * (2 * noise + 1) >> 8) - noise);
        }
    }

    SynthOptions options_;
};

class ClassSource : public SynthSource {
  public:
    explicit ClassSource(const SynthOptions& options) : SynthSource(options) {
        fields_ = {images(), {.name = "labels", .type = ElementType::i64}};
        for (std::uint32_t c = 0; c < options.classes; ++c)
            fields_[1].class_names.push_back(fmt::format("pattern-{}", c));
        cells_.resize(std::size_t{options.classes} * 3 * grid * grid);
        CounterRandom random = this->random(Use::pattern, 0);
        for (std::int32_t& cell : cells_) cell = static_cast<std::int32_t>(random.below(256)) - 128;
    }

    void read(std::size_t field, std::uint64_t row, std::span<std::byte> out) const override {
        row += options_.first;
        CounterRandom random = this->random(Use::label, row);
        const auto label = static_cast<std::int64_t>(random.below(options_.classes));
        if (field == 1)
            std::memcpy(out.data(), &label, sizeof label);
        else
            draw(static_cast<std::size_t>(label), row, random, bytes_out(out));
    }

  private:
    void draw(std::size_t label,
              std::uint64_t row,
              CounterRandom& random,
              std::span<std::uint8_t> out) const {
        const std::uint32_t size = options_.size, reach = size / 8 + 1;
        const auto down = static_cast<std::uint32_t>(random.below(reach)),
                   right = static_cast<std::uint32_t>(random.below(reach));
        const auto contrast = static_cast<std::int32_t>(96 + random.below(160));  // of 256
        const auto light = static_cast<std::int32_t>(96 + random.below(64));
        for (std::uint32_t c = 0; c < 3; ++c)
            for (std::uint32_t y = 0; y < size; ++y)
                for (std::uint32_t x = 0; x < size; ++x)
                    out[(c * size + y) * std::size_t{size} + x] =
                        clamped(light + pattern(label, c, y + down, x + right) * contrast / 256);
        add_noise(out, this->random(Use::pixels, row));
    }

    // The class's grid, bilinear between cells, repeating.
    std::int32_t pattern(std::size_t label,
                         std::uint32_t c,
                         std::uint32_t y,
                         std::uint32_t x) const {
        const std::uint32_t v = y * grid * 16 / options_.size, u = x * grid * 16 / options_.size;
        const auto fy = static_cast<std::int32_t>(v % 16), fx = static_cast<std::int32_t>(u % 16);
        const auto cell = [&](std::uint32_t i, std::uint32_t j) {
            return cells_[((label * 3 + c) * grid + i % grid) * grid + j % grid];
        };
        const std::uint32_t i = v / 16, j = u / 16;
        const std::int32_t top = cell(i, j) * (16 - fx) + cell(i, j + 1) * fx;
        const std::int32_t low = cell(i + 1, j) * (16 - fx) + cell(i + 1, j + 1) * fx;
        return (top * (16 - fy) + low * fy) / 256;
    }

    std::vector<std::int32_t> cells_;  // by class, channel, row, column: -128 to 127
};

class SegmentationSource : public SynthSource {
  public:
    explicit SegmentationSource(const SynthOptions& options) : SynthSource(options) {
        fields_ = {images(),
                   {.name = "masks", .shape = {options.size, options.size}, .layout = "HW"}};
        for (std::uint32_t c = 0; c < options.classes; ++c) {
            CounterRandom random = this->random(Use::color, c);
            for (std::uint8_t& value : colors_.emplace_back())
                value = static_cast<std::uint8_t>(random.below(256));
        }
    }

    void read(std::size_t field, std::uint64_t row, std::span<std::byte> out) const override {
        row += options_.first;
        const std::size_t plane = std::size_t{options_.size} * options_.size;
        std::vector<std::uint8_t> mask(plane, 0);
        draw_shapes(row, mask);
        if (field == 1) {
            std::memcpy(out.data(), mask.data(), plane);
            return;
        }
        const std::span<std::uint8_t> pixels = bytes_out(out);
        for (std::size_t c = 0; c < 3; ++c)
            for (std::size_t p = 0; p < plane; ++p) pixels[c * plane + p] = colors_[mask[p]][c];
        add_noise(pixels, random(Use::pixels, row));
    }

  private:
    void draw_shapes(std::uint64_t row, std::vector<std::uint8_t>& mask) const {
        CounterRandom random = this->random(Use::shapes, row);
        const std::uint64_t shapes = 1 + random.below(most_shapes);
        const std::int64_t size = options_.size;
        for (std::uint64_t i = 0; i < shapes; ++i) {
            const auto label = static_cast<std::uint8_t>(1 + random.below(options_.classes - 1));
            const auto y = static_cast<std::int64_t>(random.below(options_.size));
            const auto x = static_cast<std::int64_t>(random.below(options_.size));
            const auto reach = 2 + static_cast<std::int64_t>(random.below(options_.size / 4));
            const bool is_disc = random.below(2) == 1;
            for (std::int64_t v = std::max<std::int64_t>(y - reach, 0);
                 v < std::min(y + reach, size);
                 ++v)
                for (std::int64_t u = std::max<std::int64_t>(x - reach, 0);
                     u < std::min(x + reach, size);
                     ++u)
                    if (!is_disc || (v - y) * (v - y) + (u - x) * (u - x) < reach * reach)
                        mask[static_cast<std::size_t>(v * size + u)] = label;
        }
    }

    std::vector<std::array<std::uint8_t, 3>> colors_;
};

// All values are whole multiples of small powers of two, so that no sum is ever rounded but by its
// final conversion.
class RegressionSource : public SynthSource {
  public:
    explicit RegressionSource(const SynthOptions& options) : SynthSource(options) {
        fields_ = {{.name = "features", .type = ElementType::f32, .shape = {options.size}},
                   {.name = "targets", .type = ElementType::f32}};
        weights_ = values(random(Use::weights, 0));
        squares_ = values(random(Use::weights, 1));
    }

    void read(std::size_t field, std::uint64_t row, std::span<std::byte> out) const override {
        row += options_.first;
        CounterRandom random = this->random(Use::features, row);
        const std::vector<std::int32_t> features = values(random);
        for (std::size_t i = 0; field == 0 && i < features.size(); ++i) {
            const float value = static_cast<float>(features[i]) / one;
            std::memcpy(out.data() + i * sizeof value, &value, sizeof value);
        }
        if (field == 0) return;
        const float value = target(features, this->random(Use::features, row, 1));
        std::memcpy(out.data(), &value, sizeof value);
    }

  private:
    // In [-1, 1), of 1/32768.
    std::vector<std::int32_t> values(CounterRandom random) const {
        std::vector<std::int32_t> all(options_.size);
        for (std::int32_t& value : all)
            value = static_cast<std::int32_t>(random.below(2 * one)) - one;
        return all;
    }

    // The mean over features of a x + b x^2, times 4, and noise of up to 1/32.
    float target(const std::vector<std::int32_t>& x, CounterRandom random) const {
        std::int64_t sum = 0;
        for (std::size_t i = 0; i < x.size(); ++i)
            sum += std::int64_t{weights_[i]} * x[i] + std::int64_t{squares_[i]} * x[i] / one * x[i];
        const std::int64_t mean = 4 * sum / static_cast<std::int64_t>(x.size()) / one;
        const auto extra = static_cast<std::int64_t>(random.below(one / 16)) - one / 32;
        return static_cast<float>(mean + extra) / one;
    }

    std::vector<std::int32_t> weights_, squares_;
};

// Half of all tokens follow from the one before, three in eight from the two before, and one in
// eight from nothing. A model that sees one token learns some of it, one that sees more learns
// more.
class TextSource : public SynthSource {
  public:
    explicit TextSource(const SynthOptions& options)
        : SynthSource(options),
          after_one_(successors(1, options.classes)),
          after_two_(successors(2, std::size_t{options.classes} * options.classes)) {
        fields_ = {{.name = "tokens", .shape = {std::int64_t{options.size} + 1}}};
    }

    void read(std::size_t, std::uint64_t row, std::span<std::byte> out) const override {
        CounterRandom random = this->random(Use::tokens, options_.first + row);
        std::uint8_t before_last = token(random), last = token(random);
        for (std::uint8_t& token : bytes_out(out)) {
            token = next(before_last, last, random.next());
            before_last = last;
            last = token;
        }
    }

  private:
    std::uint8_t token(CounterRandom& random) const {
        return static_cast<std::uint8_t>(random.below(options_.classes));
    }
    std::vector<std::uint8_t> successors(std::uint64_t number, std::size_t contexts) const {
        CounterRandom random = this->random(Use::chain, number);
        std::vector<std::uint8_t> tokens(contexts);
        for (std::uint8_t& each : tokens) each = token(random);
        return tokens;
    }
    std::uint8_t next(std::uint8_t before_last, std::uint8_t last, std::uint64_t random) const {
        const std::uint64_t eighth = random % 8;
        if (eighth < 4) return after_one_[last];
        if (eighth < 7) return after_two_[std::size_t{before_last} * options_.classes + last];
        return static_cast<std::uint8_t>(random / 8 % options_.classes);
    }

    std::vector<std::uint8_t> after_one_, after_two_;  // by last token; by the two last ones
};

constexpr std::uint64_t scratch_bytes = 32u << 20;
constexpr std::uint64_t scratch_seed = 0x10b;

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

void draw_scratch(std::span<std::byte> image,
                  const std::vector<std::int64_t>& shape,
                  std::uint64_t number) {
    CounterRandom random(Purpose::test, {scratch_seed, number});
    const auto height = static_cast<double>(shape[1]), width = static_cast<double>(shape[2]);
    auto pixel = image.begin();
    for (std::int64_t channel = 0; channel < shape[0]; ++channel) {
        const Waves waves(random);
        for (std::int64_t y = 0; y < shape[1]; ++y)
            for (std::int64_t x = 0; x < shape[2]; ++x, ++pixel) {
                const double light =
                    waves.at(static_cast<double>(y) / height, static_cast<double>(x) / width);
                if (light <= 0) continue;
                const double noisy = light + static_cast<double>(random.below(24));
                *pixel = static_cast<std::byte>(std::min(255.0, noisy));
            }
    }
}

class ScratchRows : public RowSource {
  public:
    explicit ScratchRows(const ScratchShape& shape)
        : RowSource(shape.samples), classes_(static_cast<std::uint64_t>(shape.classes)) {
        expect(shape.image.size() == 3 && shape.classes > 0, "scratch images are CHW with classes");
        fields_ = {
            {.name = "images", .type = ElementType::u8, .shape = shape.image, .layout = "CHW"},
            {.name = "labels", .type = ElementType::i64, .shape = {}}};
        row_bytes_ = fields_[0].bytes_per_sample();
        distinct_ = std::clamp<std::uint64_t>(scratch_bytes / row_bytes_, 1, samples_);
        images_.resize(distinct_ * row_bytes_);
        for (std::uint64_t i = 0; i < distinct_; ++i)
            draw_scratch(std::span(images_).subspan(i * row_bytes_, row_bytes_), shape.image, i);
    }

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
    std::uint64_t classes_, row_bytes_ = 0, distinct_ = 0;
    std::vector<std::byte> images_;
};

void check_range(std::string_view what,
                 std::uint64_t value,
                 std::uint64_t least,
                 std::uint64_t most) {
    check(value >= least && value <= most,
          "E102",
          fmt::format("synthetic data of {} {}", what, value),
          fmt::format("{} to {} are possible", least, most),
          "give a number in that range");
}

}  // namespace

std::unique_ptr<RowSource> make_synthetic(const SynthOptions& options) {
    const bool is_flat = options.kind == SynthKind::regression || options.kind == SynthKind::text;
    check_range("samples", options.samples, 1, std::uint64_t{1} << 40);
    check_range("first sample", options.first, 0, std::uint64_t{1} << 60);
    check_range("size", options.size, is_flat ? 1 : 8, is_flat ? 65536 : 4096);
    check_range("classes", options.classes, 2, 255);
    if (options.kind == SynthKind::regression) return std::make_unique<RegressionSource>(options);
    if (options.kind == SynthKind::text) return std::make_unique<TextSource>(options);
    if (options.kind == SynthKind::segmentation)
        return std::make_unique<SegmentationSource>(options);
    return std::make_unique<ClassSource>(options);
}

std::unique_ptr<RowSource> scratch_rows(const ScratchShape& shape) {
    return std::make_unique<ScratchRows>(shape);
}

}  // namespace lockstep
