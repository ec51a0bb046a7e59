# The standard library's headers that nearly every file includes, compiled once a module and once for
# all test programs: about a second less for each of some 600 files. Each file still includes what it
# uses; the public headers are compiled without these.
set(LOCKSTEP_STANDARD_HEADERS
    <algorithm> <array> <atomic> <chrono> <cmath> <condition_variable> <cstdint> <cstring>
    <filesystem> <fstream> <functional> <map> <memory> <mutex> <numeric> <optional> <set> <span>
    <sstream> <string> <string_view> <thread> <utility> <vector> <fmt/format.h>)

# lockstep_precompile(target): the standard headers of a module's library.
function(lockstep_precompile target)
    target_precompile_headers(${target} PRIVATE ${LOCKSTEP_STANDARD_HEADERS})
endfunction()
