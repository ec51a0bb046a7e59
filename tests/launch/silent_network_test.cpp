// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/files.hpp"
#include "lockstep/launch/start_watch.hpp"

#include "doctor/probes.hpp"
#include "support/unit.hpp"

#include <map>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace lockstep {
namespace {

HostAddresses two_networks() {
    HostAddresses own;
    own.usable = {{"lo", "127.0.0.2", "127.0.0.0/8"}, {"lan0", "192.168.99.1", "192.168.99.0/24"}};
    return own;
}

// A port of this host, and its number.
struct OpenPort {
    UniqueFd socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    int number = 0;

    OpenPort() {
        sockaddr_in any{};
        any.sin_family = AF_INET;
        any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof any;
        auto* name = reinterpret_cast<sockaddr*>(&any);
        EXPECT_EQ(::bind(socket.value(), name, size), 0);
        EXPECT_EQ(::listen(socket.value(), 4), 0);
        ::getsockname(socket.value(), name, &size);
        number = ntohs(any.sin_port);
    }
};

TEST(SilentNetwork, ReadsWhereMpirunListens) {
    const auto ports = launcher_ports("1579679744.0;tcp://10.77.0.1,192.168.99.1:47007");
    EXPECT_THAT(ports.addresses, ElementsAre("10.77.0.1", "192.168.99.1"));
    EXPECT_EQ(ports.port, 47007);
    EXPECT_THAT(launcher_ports("1.0;usock;tcp://10.0.0.1:5").addresses, ElementsAre("10.0.0.1"));
    for (const char* other : {"", "nonsense", "1.0;tcp://10.0.0.1", "1.0;tcp://10.0.0.1:x"})
        EXPECT_TRUE(launcher_ports(other).addresses.empty()) << other;
}

TEST(SilentNetwork, KnowsWhichNetworkAnswersAndNamesTheLineThatWorks) {
    const OpenPort open;
    const HostAddresses own = two_networks();
    const LauncherPorts launcher{{"127.0.0.1", "192.168.99.1", "10.9.9.9"}, open.number};
    const NetworkSight sight = look_at_networks(launcher, own, MpirunPlace::elsewhere);
    EXPECT_THAT(sight.working, ElementsAre("127.0.0.0/8"));
    EXPECT_THAT(sight.silent, ElementsAre(HasSubstr("this host has that address itself")));
    const Error error = no_contact("b", "MPI_Init", 45, own, sight);
    EXPECT_EQ(error.code(), "E692");
    EXPECT_THAT(error.what(), HasSubstr("host b"));
    EXPECT_THAT(error.why(), HasSubstr("192.168.99.0/24 (lan0)"));
    EXPECT_THAT(error.fix(),
                HasSubstr("export OMPI_MCA_btl_tcp_if_include=127.0.0.0/8 "
                          "OMPI_MCA_oob_tcp_if_include=127.0.0.0/8; or "));
}

TEST(SilentNetwork, NamesWhatDoesNotAnswer) {
    const int closed = OpenPort().number;
    const NetworkSight sight =
        look_at_networks({{"127.0.0.1"}, closed}, two_networks(), MpirunPlace::elsewhere);
    EXPECT_TRUE(sight.working.empty());
    EXPECT_THAT(sight.silent, ElementsAre(HasSubstr("Connection refused")));
}

// A bridge of containers on both hosts, under plain mpirun.
TEST(SilentNetwork, NamesTheBridgeThatOpenMpiTries) {
    HostAddresses own;
    own.usable = {{"eth0", "10.77.0.1", "10.77.0.0/24"}};
    own.left_out = {{"lo", "loopback"}, {"docker0", "a bridge for containers"}};
    const LauncherPorts launcher{{"10.77.0.1", "172.17.0.1"}, 1};
    const NetworkSight sight = look_at_networks(launcher, own, MpirunPlace::here);
    EXPECT_TRUE(sight.silent.empty()) << "its own address says nothing";
    const Error error = no_contact("a", "MPI_Init", 45, own, sight);
    EXPECT_THAT(error.why(), HasSubstr("it also tries docker0 (a bridge for containers)"));
    EXPECT_THAT(error.why(), Not(HasSubstr("loopback")));
    EXPECT_THAT(error.fix(), HasSubstr("export OMPI_MCA_btl_tcp_if_include=10.77.0.0/24 "));
    EXPECT_THAT(error.fix(), Not(HasSubstr("with one in which")));
}

TEST(StartWatch, SaysWhatAnEndInMpiInitMeansAndTakesItsLimitsFromTheEnvironment) {
    const auto meaning = [](std::map<std::string, std::string> variables) {
        return init_failed(1, Environment(std::move(variables)));
    };
    const Error pmi = meaning({{"PMI_FD", "5"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "4"}});
    EXPECT_EQ(pmi.code(), "E604");
    EXPECT_THAT(pmi.what(), HasSubstr("MPI_Init ended this process on "));
    EXPECT_THAT(pmi.why(), HasSubstr("no PMIx"));
    EXPECT_THAT(pmi.fix(), StartsWith("srun --mpi=pmix -n 4 lockstep"));
    const Error other = meaning({{"PMI_FD", "5"}, {"PMIX_NAMESPACE", "slurm.pmix.1.0"}});
    EXPECT_THAT(other.why(), Not(HasSubstr("PMI-2")));
    const auto limits = [](const std::string& text) {
        return start_limits(
            Environment(std::map<std::string, std::string>{{"LOCKSTEP_START_TIMEOUT", text}}));
    };
    EXPECT_EQ(limits("7").init_s, 7);
    EXPECT_EQ(limits("7").contact_s, 7);
    EXPECT_EQ(caught_code([&] { limits("soon"); }), "E102");
    EXPECT_EQ(caught_code([&] { limits("0"); }), "E102");
}

}  // namespace
}  // namespace lockstep
