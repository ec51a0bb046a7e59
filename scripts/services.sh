# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Debian's packages start their daemons and enable them for the next boot. What the tests need of SLURM,
# munge and sshd they start themselves, so that a laptop need not. Sourced by scripts/setup.

admin=()                             # prefix of commands that need rights: empty or sudo
service_policy=/usr/sbin/policy-rc.d # what dpkg asks whether a service may start
unit_folder=/etc/systemd/system      # links here make systemd start units at boot
services_denied=

unit_links() { find "$unit_folder" -mindepth 1 -type l 2>/dev/null | sort; }

# From here on no package starts a service.
deny_services() {
    links_before=$(unit_links)
    services_denied=policy-kept # an administrator's own
    [[ ! -e $service_policy ]] || return 0
    services_denied=policy-made
    printf '#!/bin/sh\nexit 101\n' | "${admin[@]}" tee "$service_policy" >/dev/null
    "${admin[@]}" chmod 755 "$service_policy"
}

# Takes back what packages have enabled since, as 'systemctl disable' does (dpkg remembers the links,
# and an upgrade does not enable what lacks them), and allows starts again. Also after a failure.
allow_services() {
    local links
    [[ -n $services_denied ]] || return 0
    mapfile -t links < <(comm -13 <(printf '%s\n' "$links_before") <(unit_links))
    if ((${#links[@]})); then
        "${admin[@]}" rm -f -- "${links[@]}"
        say "left disabled, as the tests start their own: ${links[*]##*/}"
    fi
    [[ $services_denied == policy-kept ]] || "${admin[@]}" rm -f -- "$service_policy"
    services_denied=
}
