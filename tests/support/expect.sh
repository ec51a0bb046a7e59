# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# How tests in shell compare. They end with: exit $((failures > 0)).
# shellcheck disable=SC2034 # for the scripts that include this
failures=0

# expect_equal WHAT IS EXPECTED. The function explain_failure, if there is one, says more.
expect_equal() {
    [[ $2 == "$3" ]] && return
    printf '%s: %s\n  expected: %s\n  is:       %s\n' "${0##*/}" "$1" "$3" "$2" >&2
    if declare -F explain_failure >/dev/null; then explain_failure; fi
    failures=$((failures + 1))
}

# expect_match WHAT TEXT PATTERN: lines are joined by blanks.
expect_match() { [[ $(tr '\n' ' ' <<<"$2") =~ $3 ]] || expect_equal "$1" "$2" "a match of $3"; }

# give_up WHY: ends the test, and shows what the last command of ends() said.
give_up() {
    if [[ -e said ]]; then cat said; fi
    echo "${0##*/}: $1"
    exit 1
}

# ends CODE TEXT COMMAND...: it ends with CODE and says TEXT, which is in the file `said` afterwards.
ends() {
    local code=0 wanted=$1 text=$2
    shift 2
    "$@" >said 2>&1 || code=$?
    [[ $code == "$wanted" ]] || give_up "exit code $code, not $wanted: $*"
    grep -qF -- "$text" said || give_up "does not say '$text': $*"
}
