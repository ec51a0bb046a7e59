# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Copyright files of what a bundle copies: nearly all licences ask that they go along. Sourced by
# scripts/bundle.

# package_of[PATH]: the Debian package that a file is from, for the paths given. /lib is /usr/lib, but
# dpkg knows some files by one name, others by the other.
declare -A package_of
find_packages() {
    local path real line candidates=()
    declare -A found
    command -v dpkg-query >/dev/null || return 0
    for path in "$@"; do
        real=$(readlink -f "$path")
        candidates+=("$path" "$real" "${real#/usr}")
    done
    while read -r line; do
        found[${line##*: }]=${line%%[:,]*}
    done < <(dpkg-query -S "${candidates[@]}" 2>/dev/null || true)
    for path in "$@"; do
        real=$(readlink -f "$path")
        package_of[$path]=${found[$real]-${found[${real#/usr}]-${found[$path]-}}}
    done
}

# write_notices OUT <PATHS: puts into OUT/share/doc, for lines of 'path in the bundle<tab>path that it
# was copied from', each package's copyright file, the licences that these refer to, and LIBRARIES:
# what is from which package and version. Says what belongs to no package.
write_notices() {
    local out=$1/share/doc lines line source package licence unknown=()
    declare -A version_of
    mkdir -p "$out/common-licenses"
    mapfile -t lines
    find_packages "${lines[@]#*$'\t'}"
    for line in "${lines[@]}"; do
        source=${line#*$'\t'}
        package=${package_of[$source]-}
        if [[ -z $package || ! -s /usr/share/doc/$package/copyright ]]; then
            unknown+=("$source")
            continue
        fi
        if [[ ! -e $out/$package/copyright ]]; then
            mkdir -p "$out/$package"
            cp -L "/usr/share/doc/$package/copyright" "$out/$package/copyright"
            version_of[$package]=$(dpkg-query -W -f='${Version}\n' "$package" | head -n 1)
        fi
        printf '%s\t%s\t%s\n' "${line%%$'\t'*}" "$package" "${version_of[$package]}"
    done >"$out/LIBRARIES"
    sort -u -o "$out/LIBRARIES" "$out/LIBRARIES"
    while read -r licence; do
        [[ ! -e $licence ]] || cp -L "$licence" "$out/common-licenses/"
    done < <(grep -rhoE '/usr/share/common-licenses/[A-Za-z0-9]+(-[0-9.]*[0-9])?' "$out" | sort -u)
    ((${#unknown[@]} == 0)) ||
        say "warning: no copyright file is known of what belongs to no Debian package: ${unknown[*]}"
}
