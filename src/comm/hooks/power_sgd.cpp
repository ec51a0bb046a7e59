// SPDX-License-Identifier: Apache-2.0
// A gradient as a matrix M of n x m has few directions that matter. One step of the power method
// finds r of them, and only these travel (Vogels, Karimireddy, Jaggi 2019):
//
//     M += error                      what earlier steps left out
//     P  = M Q'   [n, r]   -- all-reduce -->  orthonormalise      Q: the last step's, or random
//     Q  = P' M   [r, m]   -- all-reduce -->  the next step's guess
//     M := P Q                        the same on all ranks
//     error = M of this rank - P Q of this rank                   kept here, never sent
//
// Matrices lie as r rows of n or m floats each, so that all loops run along rows. Tensors for which
// r (n + m) is no less than n m travel unchanged, behind the Ps of their bucket.
//
// What must never happen:
// - Ranks decode different matrices. P is orthonormalised after the sum, by the same code on the
//   same bits, and random guesses are keyed by (seed, tensor, row), not by rank.
// - A row of Q that became zero stays zero: that direction would be lost for good. It begins anew.
// - A NaN or an infinity stays in `error` or Q for all later steps. The gradient of that step
//   becomes NaN on all ranks, which is seen, and neither memory is touched.
//
// Tested: comm/hooks/power_sgd_test.cpp, row_kernels_test.cpp, hooked_exchange_test.cpp.

#include "lockstep/comm/bucket_hook.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/random.hpp"

#include "hooks/row_kernels.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

/// A gradient M of rows x columns that travels as P = M Q' (r rows of `rows`) and Q = P M (r rows
/// of `columns`); Q stays as the next step's first guess.
struct Matrix {
    std::size_t tensor, begin;  ///< begin: in its bucket
    std::size_t rows, columns;
    std::size_t p_begin, q_begin;  ///< in what its bucket sends
    std::vector<float> error, q;

    std::size_t size() const { return rows * columns; }
};

/// What of a bucket travels how.
struct Bucket {
    std::vector<Matrix> matrices;
    std::vector<FloatRange> unchanged;       ///< in the bucket
    std::size_t p_floats = 0, q_floats = 0;  ///< unchanged ones follow the P
    std::size_t unchanged_floats = 0;
};

class PowerSgd : public BucketHook {
  public:
    PowerSgd(const FlatLayout& layout,
             std::span<const MatrixShape> shapes,
             const PowerSgdOptions& options,
             AllReduce& sum)
        : rank_(static_cast<std::size_t>(options.rank)),
          seed_(options.seed),
          sum_(sum),
          buckets_(layout.bucket_count()) {
        expect(options.rank >= 1, "an approximation has a rank");
        expect(shapes.size() == layout.tensor_count(), "one shape for each tensor");
        for (std::size_t tensor = 0; tensor < shapes.size(); ++tensor)
            add_tensor(layout, tensor, shapes[tensor]);
    }

    std::string_view name() const override { return name_of(WireFormat::power_sgd); }

    void sum(std::size_t index, std::span<float> values) override {
        Bucket& bucket = buckets_[index];
        volume_.gradient_bytes += values.size_bytes();
        sum_p(bucket, values);
        sum_q(bucket, values);
        for (Matrix& matrix : bucket.matrices) decode(matrix, matrix_in(values, matrix));
        copy_unchanged(bucket, values, From::wire);
    }

    WireVolume take_volume() override { return std::exchange(volume_, {}); }

    std::vector<NamedFloats> state() override {
        std::vector<NamedFloats> all;
        for (Bucket& bucket : buckets_)
            for (Matrix& matrix : bucket.matrices) {
                all.push_back({fmt::format("powersgd.error.{}", matrix.tensor), matrix.error});
                all.push_back({fmt::format("powersgd.q.{}", matrix.tensor), matrix.q});
            }
        return all;
    }

  private:
    void add_tensor(const FlatLayout& layout, std::size_t tensor, MatrixShape shape) {
        const FloatRange range = layout.tensor(tensor);
        expect(shape.rows * shape.columns == range.size(), "a shape has its tensor's elements");
        const std::size_t index = layout.bucket_of(tensor);
        const std::size_t begin = range.begin - layout.bucket(index).begin;
        Bucket& bucket = buckets_[index];
        if (rank_ * (shape.rows + shape.columns) >= range.size()) {
            bucket.unchanged.push_back({begin, begin + range.size()});
            bucket.unchanged_floats += range.size();
            return;
        }
        bucket.matrices.push_back({tensor,
                                   begin,
                                   shape.rows,
                                   shape.columns,
                                   bucket.p_floats,
                                   bucket.q_floats,
                                   std::vector<float>(range.size()),
                                   std::vector<float>(rank_ * shape.columns)});
        bucket.p_floats += rank_ * shape.rows;
        bucket.q_floats += rank_ * shape.columns;
    }

    static std::span<float> matrix_in(std::span<float> values, const Matrix& matrix) {
        return values.subspan(matrix.begin, matrix.size());
    }
    static std::span<float> row_of(std::span<float> m, const Matrix& matrix, std::size_t row) {
        return m.subspan(row * matrix.columns, matrix.columns);
    }
    std::span<float> p_of(const Matrix& matrix) {
        return std::span(p_).subspan(matrix.p_begin, rank_ * matrix.rows);
    }
    std::span<float> q_of(const Matrix& matrix) {
        return std::span(q_).subspan(matrix.q_begin, rank_ * matrix.columns);
    }
    std::span<float> own_q_of(const Matrix& matrix) {
        return std::span(own_q_).subspan(matrix.q_begin, rank_ * matrix.columns);
    }

    /// A row of Q that the last step left zero, or none yet, begins anew from random numbers.
    void make_guess(Matrix& matrix) {
        orthonormalise(matrix.q, rank_);
        for (std::size_t k = 0; k < rank_; ++k) {
            const std::span<float> row = row_of(matrix.q, matrix, k);
            if (std::ranges::any_of(row, [](float value) { return value != 0; })) continue;
            CounterRandom random(Purpose::compression, {seed_, matrix.tensor, k});
            for (float& value : row) value = static_cast<float>(2 * random.uniform() - 1);
            orthonormalise(matrix.q, rank_);
        }
    }

    /// Adds what earlier steps left out, then sums P = M Q' over ranks, and all that is unchanged.
    void sum_p(Bucket& bucket, std::span<float> values) {
        p_.resize(bucket.p_floats + bucket.unchanged_floats);
        for (Matrix& matrix : bucket.matrices) {
            make_guess(matrix);
            const std::span<float> m = matrix_in(values, matrix);
            add_scaled(m, matrix.error, 1);
            const std::span<float> p = p_of(matrix);
            for (std::size_t row = 0; row < matrix.rows; ++row)
                for (std::size_t k = 0; k < rank_; ++k)
                    p[k * matrix.rows + row] =
                        dot(row_of(m, matrix, row), row_of(matrix.q, matrix, k));
        }
        copy_unchanged(bucket, values, From::bucket);
        all_reduce(p_);
    }

    /// Sums Q = P M over ranks with the orthonormal P; own_q_ is this rank's part.
    void sum_q(Bucket& bucket, std::span<float> values) {
        q_.assign(bucket.q_floats, 0.0f);
        for (const Matrix& matrix : bucket.matrices) {
            const std::span<float> p = p_of(matrix), m = matrix_in(values, matrix);
            if (all_finite(p)) orthonormalise(p, rank_);
            for (std::size_t row = 0; row < matrix.rows; ++row)
                for (std::size_t k = 0; k < rank_; ++k)
                    add_scaled(row_of(q_of(matrix), matrix, k),
                               row_of(m, matrix, row),
                               p[k * matrix.rows + row]);
        }
        own_q_ = q_;
        all_reduce(q_);
    }

    /// m = P' Q, and the error is what P' own_q_ lacks of it. A gradient that is not finite stays
    /// so, on all ranks, and leaves no trace in later steps.
    void decode(Matrix& matrix, std::span<float> m) {
        const std::span<float> p = p_of(matrix), q = q_of(matrix), own_q = own_q_of(matrix);
        if (!all_finite(p) || !all_finite(q)) {
            std::ranges::fill(m, std::numeric_limits<float>::quiet_NaN());
            return;
        }
        std::ranges::copy(q, matrix.q.begin());
        std::ranges::copy(m, matrix.error.begin());
        std::ranges::fill(m, 0.0f);
        for (std::size_t row = 0; row < matrix.rows; ++row)
            for (std::size_t k = 0; k < rank_; ++k) {
                const float factor = p[k * matrix.rows + row];
                add_scaled(row_of(m, matrix, row), row_of(q, matrix, k), factor);
                add_scaled(row_of(matrix.error, matrix, row), row_of(own_q, matrix, k), -factor);
            }
    }

    enum class From { bucket, wire };
    void copy_unchanged(const Bucket& bucket, std::span<float> values, From from) {
        std::span<float> wire = std::span(p_).subspan(bucket.p_floats);
        for (const FloatRange& range : bucket.unchanged) {
            const std::span<float> part = values.subspan(range.begin, range.size());
            if (from == From::bucket)
                std::ranges::copy(part, wire.begin());
            else
                std::ranges::copy(wire.first(part.size()), part.begin());
            wire = wire.subspan(part.size());
        }
    }

    void all_reduce(std::vector<float>& values) {
        volume_.wire_bytes += values.size() * sizeof(float);
        sum_.all_reduce(values.data(), values.size(), DataType::float32);
    }

    const std::size_t rank_;  ///< r, of the approximation
    const std::uint64_t seed_;
    AllReduce& sum_;
    std::vector<Bucket> buckets_;
    std::vector<float> p_, q_, own_q_;  ///< of the bucket at work
    WireVolume volume_;
};

}  // namespace

std::unique_ptr<BucketHook> make_power_sgd(const FlatLayout& layout,
                                           std::span<const MatrixShape> shapes,
                                           const PowerSgdOptions& options,
                                           AllReduce& sum) {
    return std::make_unique<PowerSgd>(layout, shapes, options, sum);
}

}  // namespace lockstep
