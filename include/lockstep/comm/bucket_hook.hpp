// SPDX-License-Identifier: Apache-2.0
/// @file
/// Lossy ways to sum a bucket, for plain runs on slow networks: fewer bytes instead of exact sums.
#pragma once

#include "lockstep/comm/collectives.hpp"
#include "lockstep/comm/exchange.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// What gradients travel as.
enum class WireFormat { float32, bfloat16, float16, power_sgd };

/// "f32", "bf16", "fp16", "powersgd"
std::string_view name_of(WireFormat format);

/// The format of that name; nothing for another word.
std::optional<WireFormat> wire_format_named(std::string_view name);

/// Errors: E641 for a lossy format where bits must not depend on the number of ranks.
void check_wire_format(WireFormat format, Summation summation);

/// Bytes of gradients that a rank had to sum, and what it handed to collectives for that.
struct WireVolume {
    std::uint64_t gradient_bytes = 0;   ///< that were to be summed
    std::uint64_t wire_bytes = 0;       ///< that went to collectives
    double compression_ratio() const {  ///< not finite where nothing was sent
        return static_cast<double>(gradient_bytes) / static_cast<double>(wire_bytes);
    }
};

/// A part of a hook's memory of earlier steps.
struct NamedFloats {
    std::string name;         ///< "powersgd.q.3": unique within the hook
    std::span<float> values;  ///< the hook's own memory
};

/// Sums buckets over ranks, about. One thread; the same buckets in the same order on every rank.
class BucketHook {
  public:
    virtual ~BucketHook() = default;

    /// As `--wire` spells it.
    virtual std::string_view name() const = 0;

    /// Collective. In: this rank's partial of `bucket`, all of it. Out: about the sum over all
    /// ranks, the same bits on every rank.
    virtual void sum(std::size_t bucket, std::span<float> values) = 0;

    /// Since the last call.
    virtual WireVolume take_volume() = 0;

    /// What this rank's later steps depend on; empty for most hooks. A checkpoint that keeps it
    /// continues as if undisturbed on as many ranks; otherwise a run goes on from zeros.
    virtual std::vector<NamedFloats> state() { return {}; }
};

/// Collective. WireFormat::bfloat16 or float16. Partials are rounded once before they travel, added
/// in float32, and the sum is rounded once before it travels back (bfloat16: as often as `sum`
/// does; once by Collectives). float16 never overflows nor wastes its exponent: the ranks agree on
/// a power of two for each bucket. One rank rounds nothing. `sum` outlives the hook; float16 sends
/// by plain MPI.
std::unique_ptr<BucketHook> make_wire_hook(WireFormat format,
                                           const Communicator& ranks,
                                           AllReduce& sum);

/// A tensor as a matrix: its first dimension times all others.
struct MatrixShape {
    std::size_t rows = 0;     ///< the first dimension
    std::size_t columns = 0;  ///< the product of the others
};

/// What PowerSGD is told; the same on all ranks.
struct PowerSgdOptions {
    int rank = 4;            ///< of the approximation; at least 1
    std::uint64_t seed = 0;  ///< of the first guess
};

/// PowerSGD with error feedback and warm start: Vogels, Karimireddy, Jaggi, "PowerSGD: practical
/// low-rank gradient compression", NeurIPS 2019, https://arxiv.org/abs/1905.13727, algorithm 1
/// and 2. A tensor of n x m travels as r (n + m) floats, or unchanged where that is no fewer. What
/// the approximation leaves out is added to this rank's next gradient. `shapes`: by registration;
/// `layout` is copied, `sum` outlives the hook. state(): "powersgd.error.<tensor>" of this rank,
/// "powersgd.q.<tensor>" of all.
std::unique_ptr<BucketHook> make_power_sgd(const FlatLayout& layout,
                                           std::span<const MatrixShape> shapes,
                                           const PowerSgdOptions& options,
                                           AllReduce& sum);

/// Slots, values and publish() of `inner`, but buckets are summed by `hook`: all but the state
/// bucket, which stays exact and with `inner`. `plan` is plain. reduce() of a hook's bucket waits
/// for the other ranks whatever `wait` says: collectives cannot be asked whether they are done.
/// `hook` outlives the exchange; `layout` is copied.
std::unique_ptr<Exchange> make_hooked_exchange(std::unique_ptr<Exchange> inner,
                                               const FlatLayout& layout,
                                               const TreePlan& plan,
                                               BucketHook& hook);

}  // namespace lockstep
