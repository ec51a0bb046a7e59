// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/data/transform.hpp"

#include "bound.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

// The words of one step of a pipeline, read one after the other.

/// Allowed numbers, both ends included.
template <class T>
struct Limits {
    T least, most;
};

template <class T>
void check_limits(T value, std::string_view what, Limits<T> limits, const std::string& text) {
    check(limits.least <= value && value <= limits.most,
          "E102",
          fmt::format("{} is {} in the transform '{}'", what, value, text),
          fmt::format("it must be between {} and {}", limits.least, limits.most),
          "choose another number");
}

class Words {
  public:
    explicit Words(std::string_view text) : text_(text) {
        std::istringstream stream(text_);
        for (std::string word; stream >> word;) words_.push_back(word);
    }

    const std::string& text() const { return text_; }
    bool is_empty() const { return words_.empty(); }

    /// What errors say the step looks like.
    void expect_usage(std::string usage) { usage_ = std::move(usage); }

    /// The next word, which must be there; `what` is what it should be. Errors: E247.
    std::string take(std::string_view what = "a step") {
        check(!words_.empty(), [&] { return error(fmt::format("{} is missing", what)); });
        std::string word = std::move(words_.front());
        words_.pop_front();
        return word;
    }

    /// Takes the next word if it is `word`.
    bool take_if(std::string_view word) {
        if (words_.empty() || words_.front() != word) return false;
        words_.pop_front();
        return true;
    }

    /// Errors: E247 (no number), E102 (out of range).
    int whole(std::string_view what, Limits<int> limits) {
        return whole_of(take(what), what, limits);
    }

    double real(std::string_view what, Limits<double> limits) {
        return real_of(take(what), what, limits);
    }

    /// "0.1-2": two ascending numbers.
    std::pair<double, double> range(std::string_view what, Limits<double> limits) {
        const std::string word = take(what);
        const std::size_t dash = word.find('-', 1);
        check(dash != word.npos, [&] { return error(fmt::format("'{}' is not {}", word, what)); });
        const double low = real_of(std::string_view(word).substr(0, dash), what, limits);
        const double high = real_of(std::string_view(word).substr(dash + 1), what, limits);
        check(low <= high, [&] { return error(fmt::format("'{}' descends", word)); });
        return {low, high};
    }

    /// "32" or "32x48".
    std::pair<int, std::optional<int>> size(std::string_view what) {
        const std::string word = take(what);
        const std::size_t cross = std::min(word.find('x'), word.size());
        const int height = whole_of(std::string_view(word).substr(0, cross), what, {1, most_side});
        if (cross == word.size()) return {height, std::nullopt};
        return {height, whole_of(std::string_view(word).substr(cross + 1), what, {1, most_side})};
    }

    Error error(std::string_view why) const {
        return Error("E247",
                     fmt::format("the transform '{}' cannot be read", text_),
                     std::string(why),
                     usage_.empty() ? "write a step's name" : fmt::format("write '{}'", usage_));
    }

  private:
    int whole_of(std::string_view word, std::string_view what, Limits<int> limits) const {
        const auto value = parse_integer(word);
        check(value.has_value(),
              [&] { return error(fmt::format("'{}' is no whole number for {}", word, what)); });
        check_limits<std::int64_t>(*value, what, {limits.least, limits.most}, text_);
        return static_cast<int>(*value);
    }

    double real_of(std::string_view word, std::string_view what, Limits<double> limits) const {
        const auto value = parse_real(word);
        check(value.has_value(),
              [&] { return error(fmt::format("'{}' is no number for {}", word, what)); });
        check_limits(*value, what, limits, text_);
        return *value;
    }

    std::string text_, usage_;
    std::deque<std::string> words_;
};

struct Preset {
    std::string_view name, steps, meaning;
};

// Chapter 5 of M. Alves, "Accelerate Model Training with PyTorch 2.X" (Packt, 2024); its seventh
// step, from u8 to float, is what every pipeline does first.
constexpr std::array presets = {
    Preset{"none", "", "nothing but normalise"},
    Preset{"cifar", "crop 32 pad 4, flip", "what CIFAR-10 is usually trained with"},
    Preset{"book",
           "resize 255, centre-crop 224, flip, rotate 20, blur 3, normalise imagenet",
           "the seven steps of Alves 2024, chapter 5 (the seventh: u8 to float)"},
};

void read_resize(Words& words, TransformOp& op) {
    const auto [height, width] = words.size("a side or HEIGHTxWIDTH");
    op.height = height;
    op.width = width.value_or(0);
}

void read_centre_crop(Words& words, TransformOp& op) {
    const auto [height, width] = words.size("a side or HEIGHTxWIDTH");
    op.height = height;
    op.width = width.value_or(height);
}

void read_crop(Words& words, TransformOp& op) {
    read_centre_crop(words, op);
    if (words.take_if("pad")) op.size = words.whole("the padding", {0, 1024});
}

void read_flip(Words& words, TransformOp& op) {
    op.high = words.is_empty() ? 0.5 : words.real("the probability", {0, 1});
}

void read_rotate(Words& words, TransformOp& op) {
    op.high = words.real("the largest angle in degrees", {0, 180});
}

void read_blur(Words& words, TransformOp& op) {
    op.size = words.whole("the number of taps", {3, 2 * most_blur_radius + 1});
    check(op.size % 2 == 1, [&] { return words.error("the number of taps must be odd"); });
    op.low = 0.1;
    op.high = 2;
    if (!words.is_empty()) std::tie(op.low, op.high) = words.range("sigma FROM-TO", {0.01, 100});
}

void read_cutout(Words& words, TransformOp& op) {
    op.size = words.whole("the side of the square", {1, most_side});
}

void read_mix(Words& words, TransformOp& op) {
    op.high = words.real("alpha", {0.01, 4});
}

void read_normalise(Words& words, TransformOp& op) {
    if (words.take_if("imagenet")) op.statistics = Statistics::imagenet;
}

struct Form {
    TransformKind kind;
    std::string_view name, usage, meaning;
    void (*read)(Words&, TransformOp&);
};

using enum TransformKind;
constexpr std::array forms = {
    Form{resize, "resize", "S | HxW", "bilinear; S sets the shorter side", read_resize},
    Form{crop, "crop", "S | HxW [pad P]", "at random, after P black pixels around", read_crop},
    Form{centre_crop, "centre-crop", "S | HxW", "from the middle", read_centre_crop},
    Form{flip, "flip", "[P]", "left to right, with probability P = 0.5", read_flip},
    Form{rotate,
         "rotate",
         "DEGREES",
         "by -DEGREES to DEGREES, bilinear, black outside",
         read_rotate},
    Form{blur, "blur", "TAPS [FROM-TO]", "Gaussian, sigma FROM-TO = 0.1-2", read_blur},
    Form{cutout, "cutout", "S", "a square of side S set to the mean", read_cutout},
    Form{normalise, "normalise", "[imagenet]", "(x - mean) / std; implied, last", read_normalise},
    Form{mixup, "mixup", "ALPHA", "blends images and labels by Beta(ALPHA, ALPHA)", read_mix},
    Form{cutmix, "cutmix", "ALPHA", "pastes a box of another image, mixes labels", read_mix},
};

// What follows a step's name, every default written out.
std::string arguments_of(const TransformOp& op) {
    const std::string height = fmt::format(" {}", op.height);
    const std::string both = fmt::format(" {}x{}", op.height, op.width);
    const std::string size = op.width == op.height ? height : both;
    switch (op.kind) {
        case resize:
            return op.width == 0 ? height : both;
        case crop:
            return fmt::format("{} pad {}", size, op.size);
        case centre_crop:
            return size;
        case blur:
            return fmt::format(" {} {}-{}", op.size, op.low, op.high);
        case cutout:
            return fmt::format(" {}", op.size);
        case normalise:
            return op.statistics == Statistics::imagenet ? " imagenet" : "";
        default:  // -0 would be another text of the same bits
            return fmt::format(" {}", op.high == 0 ? 0 : op.high);
    }
}

const Form& form_named(const Words& words, std::string_view name) {
    if (name == "normalize") name = "normalise";
    if (name == "center-crop") name = "centre-crop";
    const auto found = std::ranges::find(forms, name, &Form::name);
    check(found != forms.end(), [&] {
        std::vector<std::string> names;
        for (const Form& form : forms) names.emplace_back(form.name);
        for (const Preset& preset : presets) names.emplace_back(preset.name);
        const std::string near = did_you_mean(name, names);
        return Error("E247",
                     fmt::format("there is no transform '{}' (in '{}')", name, words.text()),
                     near.empty() ? "no step or preset has a similar name" : near,
                     fmt::format("the steps and presets are: {}", fmt::join(names, ", ")));
    });
    return *found;
}

TransformOp read_op(std::string_view text) {
    Words words(text);
    const Form& form = form_named(words, words.take());
    std::string steps;  // "flip, crop 32" for "flip crop 32"
    for (const std::string& word : split(text, ' ')) {
        const bool begins = std::ranges::find(forms, word, &Form::name) != forms.end();
        steps += (steps.empty() ? "" : begins ? ", " : " ") + word;
    }
    words.expect_usage(steps == text ? fmt::format("{} {}", form.name, form.usage) : steps);
    TransformOp op;
    op.kind = form.kind;
    form.read(words, op);
    check(words.is_empty(), [&] { return words.error("there is a word too many"); });
    return op;
}

Error out_of_order(std::string_view what, std::string_view why) {
    return Error("E247",
                 std::string(what),
                 std::string(why),
                 "one 'normalise' at most, only mixup or cutmix behind it, and one of these two");
}

/// Checks the order: images first, then normalise, then at most one mix.
void append(std::vector<TransformOp>& ops, const TransformOp& op) {
    const auto count = [&](auto predicate) { return std::ranges::any_of(ops, predicate); };
    const auto is_mix = [](const TransformOp& other) { return other.kind >= mixup; };
    const auto is_normalise = [](const TransformOp& other) { return other.kind == normalise; };
    check(!(is_mix(op) && count(is_mix)), [] {
        return out_of_order("the transforms mix twice", "labels are mixed with one other label");
    });
    check(is_mix(op) || !count(is_normalise), [&] {
        return out_of_order(fmt::format("'{}' comes behind 'normalise'", text_of(op)),
                            "pixels are changed in units of u8, then normalised once");
    });
    ops.push_back(op);
}

void append_item(std::vector<TransformOp>& ops, std::string_view item, std::string_view all) {
    check(!item.empty(),
          "E247",
          fmt::format("a step is missing in the transforms '{}'", all),
          "a part between two commas, or the whole list, is empty",
          "write 'none' for no transforms but normalise");
    const auto preset = std::ranges::find(presets, item, &Preset::name);
    if (preset == presets.end()) return append(ops, read_op(item));
    if (preset->steps.empty()) return;
    for (const std::string& step : split(preset->steps, ',')) append(ops, read_op(trimmed(step)));
}

}  // namespace

std::string text_of(const TransformOp& op) {
    return std::string(std::ranges::find(forms, op.kind, &Form::kind)->name) + arguments_of(op);
}

std::string TransformPipeline::text() const {
    std::vector<std::string> texts;
    for (const TransformOp& op : ops_) texts.push_back(text_of(op));
    return fmt::format("{}", fmt::join(texts, ", "));
}

TransformPipeline TransformPipeline::parse(std::string_view text) {
    std::vector<TransformOp> ops;
    for (const std::string& item : split(text, ',')) append_item(ops, trimmed(item), text);
    if (std::ranges::find(ops, normalise, &TransformOp::kind) == ops.end())
        ops.push_back(TransformOp{});
    std::ranges::stable_partition(ops, [](const TransformOp& op) { return op.kind < mixup; });
    TransformPipeline pipeline;
    pipeline.ops_ = std::move(ops);
    return pipeline;
}

bool TransformPipeline::is_asked_to_normalise(std::string_view text) {
    std::vector<TransformOp> ops;
    for (const std::string& item : split(text, ',')) append_item(ops, trimmed(item), text);
    return std::ranges::any_of(ops, [](const TransformOp& op) {
        return op.kind == normalise && op.statistics == Statistics::data_set;
    });
}

std::string transform_help() {
    std::string text = "steps, between commas:\n";
    for (const Form& form : forms)
        text +=
            fmt::format("  {:<30} {}\n", fmt::format("{} {}", form.name, form.usage), form.meaning);
    text += "presets:\n";
    for (const Preset& preset : presets) {
        text += fmt::format("  {:<30} {}\n", preset.name, preset.meaning);
        if (!preset.steps.empty()) text += fmt::format("  {:<30} = {}\n", "", preset.steps);
    }
    return text;
}

}  // namespace lockstep
