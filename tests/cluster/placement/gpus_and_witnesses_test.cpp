// SPDX-License-Identifier: Apache-2.0
#include "placement_cases.hpp"
#include "support/caught.hpp"

#include <gmock/gmock.h>

namespace lockstep::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST(VisibleGpus, FollowCuda) {
    const auto visible = [](const std::string& name, std::map<std::string, std::string> variables) {
        return visible_gpus(node_of(name), Environment(std::move(variables)));
    };
    const auto list = [](const char* text) {
        return std::map<std::string, std::string>{{"CUDA_VISIBLE_DEVICES", text}};
    };
    EXPECT_EQ(visible("dgx", {}), std::nullopt);
    EXPECT_THAT(*visible("dgx", list("")), IsEmpty());
    EXPECT_THAT(*visible("cpu16", list("0")), IsEmpty());
    const std::string uuid = "GPU-00000000-0000-0000-0000-00000000000";
    EXPECT_THAT(*visible("dgx", list("3,1")), ElementsAre(uuid + "3", uuid + "1"));
    EXPECT_THAT(*visible("dgx", list("0,-1,2")), ElementsAre(uuid + "0"));
    EXPECT_THAT(*visible("mig", list("MIG-44444444-0000-0000-0000-000000000001")), SizeIs(1));
    for (const auto* wrong : {"8", "GPU-9", "GPU-0", "x"})
        EXPECT_EQ(caught_code([&] { visible("dgx", list(wrong)); }), "E648") << wrong;
    EXPECT_THAT(
        caught_text([&] { visible("mig", list("MIG-44444444-0000-0000-0000-000000000001,1")); }),
        HasSubstr("either GPUs or MIG instances"));
}

TEST(VisibleGpus, RefuseIndicesWhereCudaOrdersBySpeed) {
    auto node = node_of("dgx");
    node.gpus[0].model = "slow";
    std::map<std::string, std::string> variables{{"CUDA_VISIBLE_DEVICES", "0"}};
    EXPECT_EQ(caught_code([&] { visible_gpus(node, Environment(variables)); }), "E648");
    variables["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID";
    EXPECT_THAT(*visible_gpus(node, Environment(variables)), SizeIs(1));
}

TEST(Sharing, NamesBothRanksOfAGpu) {
    std::vector<RankSeat> seats(3);
    for (int i = 0; i < 3; ++i) {
        auto& seat = seats[static_cast<std::size_t>(i)];
        seat.rank = i;
        seat.host = seat.host_id = i == 0 ? "a" : "b";
        seat.gpu = "0000:18:00.0";
        seat.gpu_uuid = "GPU-1";
    }
    EXPECT_THAT(caught_text([&] { check_no_sharing(seats, {}); }),
                HasSubstr("E608: ranks 1 and 2 are on one GPU of b: 0000:18:00.0 (GPU-1)"));
    seats[2].host = seats[2].host_id = "c";
    EXPECT_NO_THROW(check_no_sharing(seats, {}));
}

TEST(Witnesses, MustAgree) {
    const std::vector<NodeWitness> good{{0, "a", 0, 0, 0}, {1, "a", 0, 1, 1}, {2, "b", 2, 0, {}}};
    EXPECT_NO_THROW(check_witnesses(good));
    const auto refused = [&](auto&& change) {
        auto witnesses = good;
        change(witnesses);
        return caught_text([&] { check_witnesses(witnesses); });
    };
    EXPECT_THAT(refused([](auto& w) { w[2].host_id = "a"; }), HasSubstr("E646: rank 2"))
        << "two containers of one name";
    EXPECT_THAT(refused([](auto& w) { w[1].host_id = "c"; }), HasSubstr("E646: rank 1"));
    EXPECT_THAT(refused([](auto& w) { w[1].launcher_local_rank = 0; }),
                HasSubstr("local rank 1, the launcher says local rank 0"));
}

}  // namespace
}  // namespace lockstep::test
