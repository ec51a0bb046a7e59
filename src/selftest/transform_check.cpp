// SPDX-License-Identifier: Apache-2.0
#include "transform_check.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/data/transform.hpp"

#include "kernel_gpu.hpp"

#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::size_t images_of_check = 37;

struct Case {
    const char* pipeline;
    ImageShape shape;
    PixelLayout layout;
    std::vector<std::uint8_t> images;
    std::vector<std::uint64_t> ids;
};

Case make_case(const char* pipeline, const ImageShape& shape, PixelLayout layout) {
    Case test{pipeline, shape, layout, {}, std::vector<std::uint64_t>(images_of_check)};
    test.images.resize(images_of_check * shape.values());
    CounterRandom random(Purpose::test, {shape.values()});
    for (std::uint8_t& byte : test.images) byte = static_cast<std::uint8_t>(random.below(256));
    std::iota(test.ids.begin(), test.ids.end(), 5u);
    return test;
}

void check_bits(const Case& test,
                const std::vector<float>& gpu,
                const std::vector<float>& cpu,
                const char* what) {
    for (std::size_t i = 0; i < cpu.size(); ++i)
        check(std::memcmp(&gpu[i], &cpu[i], sizeof(float)) == 0, [&] {
            return Error("E679",
                         fmt::format("{} by '{}': value {} of {} is {} on the GPU, {} on the CPU",
                                     what,
                                     test.pipeline,
                                     i,
                                     cpu.size(),
                                     gpu[i],
                                     cpu[i]),
                         "both run one source and must give the same bits",
                         "please report it with the GPU's name and driver");
        });
}

std::vector<float> transform_on(const KernelGpu& gpu,
                                const Case& test,
                                const ImageTransform& transform,
                                TransformKey key) {
    const std::size_t scratch_bytes = transform.scratch_values(images_of_check) * sizeof(float);
    const std::size_t values = images_of_check * transform.output().values();
    const DeviceMemory images = gpu.copy_of(std::span<const std::uint8_t>(test.images));
    const std::vector<StageDraw> host_draws = transform.draw(test.ids, key);
    const DeviceMemory draws = gpu.copy_of(std::span<const StageDraw>(host_draws));
    const DeviceMemory mean = gpu.copy_of(transform.mean()), scale = gpu.copy_of(transform.scale());
    const DeviceMemory first = gpu.memory(scratch_bytes), second = gpu.memory(scratch_bytes);
    const DeviceMemory out = gpu.memory(values * sizeof(float));
    const std::vector<StageLaunch> launches =
        plan_launches(transform,
                      {.images = images.as<std::uint8_t>(),
                       .draws = draws.as<StageDraw>(),
                       .mean = mean.as<float>(),
                       .scale = scale.as<float>(),
                       .scratch = {first.as<float>(), second.as<float>()},
                       .out = out.as<float>(),
                       .layout = test.layout,
                       .count = images_of_check});
    gpu.run<TransformEntryPoint>(
        transform_entry_point, launches.data(), static_cast<int>(launches.size()));
    return gpu.values<float>(out, values);
}

void check_mix(const KernelGpu& gpu,
               const Case& test,
               const ImageTransform& transform,
               TransformKey key,
               std::vector<float> images) {
    const std::vector<MixRow> host_rows = transform.mix_rows(test.ids, key);
    if (host_rows.empty()) return;
    const DeviceMemory in = gpu.copy_of(std::span<const float>(images));
    const DeviceMemory rows = gpu.copy_of(std::span<const MixRow>(host_rows));
    const DeviceMemory out = gpu.memory(images.size() * sizeof(float));
    const ImageShape& shape = transform.output();
    const MixLaunch launch{in.as<float>(),
                           out.as<float>(),
                           rows.as<MixRow>(),
                           shape.channels,
                           shape.height,
                           shape.width,
                           test.layout,
                           images_of_check};
    gpu.run<MixEntryPoint>(mix_entry_point, &launch);
    const std::vector<float> mixed = gpu.values<float>(out, images.size());
    transform.mix(images, host_rows, test.layout);
    check_bits(test, mixed, images, "mixing");
}

void check_case(const KernelGpu& gpu, const Case& test) {
    constexpr TransformKey key{3, 4};
    const std::vector<double> mean(static_cast<std::size_t>(test.shape.channels), 0.45);
    const std::vector<double> std(static_cast<std::size_t>(test.shape.channels), 0.23);
    const ImageTransform transform(TransformPipeline::parse(test.pipeline), test.shape, mean, std);
    std::vector<float> expected(images_of_check * transform.output().values());
    transform.apply(test.images, test.ids, key, test.layout, expected);
    check_bits(test, transform_on(gpu, test, transform, key), expected, "transforming");
    check_mix(gpu, test, transform, key, expected);
}

}  // namespace

std::string check_transforms() {
    const KernelGpu gpu;
    int done = 0;
    for (const PixelLayout layout : {PixelLayout::nchw, PixelLayout::nhwc})
        for (const auto& [pipeline, shape] :
             {std::pair{"none", ImageShape{1, 28, 28}},
              std::pair{"cifar", ImageShape{3, 32, 32}},
              std::pair{"resize 40x23", ImageShape{3, 32, 32}},
              std::pair{"rotate 180", ImageShape{3, 31, 32}},
              std::pair{"blur 9", ImageShape{4, 32, 30}},
              std::pair{"crop 30 pad 2, cutout 8, flip, rotate 20, blur 3, mixup 0.4",
                        ImageShape{3, 32, 32}},
              std::pair{"centre-crop 20, cutmix 1", ImageShape{1, 28, 28}},
              std::pair{"book", ImageShape{3, 32, 32}}}) {
            check_case(gpu, make_case(pipeline, shape, layout));
            ++done;
        }
    return fmt::format(
        "{} pipelines over {} images each, the bits of the CPU", done, images_of_check);
}

}  // namespace lockstep
