# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Debian's packages start their daemons and enable them for the next boot. What the tests need of SLURM,
# munge and sshd they start themselves, so that a laptop need not. Sourced by scripts/setup.

admin=()                             # prefix of commands that need rights: empty or sudo
service_policy=/usr/sbin/policy-rc.d # what dpkg asks whether a service may start
unit_folder=/etc/systemd/system      # links here make systemd start units at boot
boot_scripts=/etc/init.d             # what other inits than systemd start at boot
services_denied=

unit_links() { find "$unit_folder" -mindepth 1 -type l 2>/dev/null | sort; }

init_scripts() { find "$boot_scripts" -mindepth 1 -maxdepth 1 -type f 2>/dev/null | sort; }

# added BEFORE COMMAND: the lines of its output that are not among BEFORE.
added() { comm -13 <(printf '%s\n' "$1") <("$2"); }

# From here on no package starts a service.
deny_services() {
    links_before=$(unit_links)
    scripts_before=$(init_scripts)
    services_denied=policy-kept # an administrator's own
    [[ ! -e $service_policy ]] || return 0
    services_denied=policy-made
    printf '#!/bin/sh\nexit 101\n' | "${admin[@]}" tee "$service_policy" >/dev/null
    "${admin[@]}" chmod 755 "$service_policy"
}

# Takes back what packages have enabled since, as 'systemctl disable' does (dpkg remembers the links,
# and an upgrade does not enable what lacks them), and allows starts again. Also after a failure.
allow_services() {
    local links scripts script
    [[ -n $services_denied ]] || return 0
    mapfile -t links < <(added "$links_before" unit_links)
    if ((${#links[@]})); then
        "${admin[@]}" rm -f -- "${links[@]}"
        say "left disabled, as the tests start their own: ${links[*]##*/}"
    fi
    mapfile -t scripts < <(added "$scripts_before" init_scripts)
    for script in "${scripts[@]}"; do "${admin[@]}" update-rc.d "${script##*/}" disable; done
    [[ $services_denied == policy-kept ]] || "${admin[@]}" rm -f -- "$service_policy"
    services_denied=
}
