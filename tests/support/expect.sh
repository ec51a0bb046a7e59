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
