export PATH LC_ALL=C SLURM_TIME_FORMAT=standard
node=${SLURMD_NODENAME:-$(hostname -s)}
export SLURMD_NODENAME="$node"  # the check names its record after it

# A field of this node's record, e.g. State or Reason.
field() { timeout 10 scontrol show node "$node" | sed -n "s/^ *$1=//p"; }

# For the log of slurmd, which keeps what a program prints, and for syslog.
report() {
    echo "gpusetup: $1"
    logger -t gpusetup -p daemon.err -- "$1" 2>/dev/null || :
}

# Whether this node, drained for the reason $1, would exceed the limit in one of its partitions;
# prints which limit. Nodes that failed checks took out of service count, those of an earlier date
# before this node. Faults of the hardware and other failed checks are counted apart.
exceeds_limit() {
    set -f  # a name may have letters that a shell would expand
    kind=$(kind_of "$1")
    if ! record=$(timeout 10 scontrol show node "$node"); then
        echo "Slurm does not say in which partitions it is"
        return 0
    fi
    for partition in $(echo "$record" | sed -n "s/^ *Partitions=//p" | tr , ' '); do
        timeout 10 sinfo -h -N -p "$partition" -o '%N|%T|%H|%E' |
        sort -t '|' -k 3,3 -k 1,1 |
        awk -F '|' -v node="$node" -v limit="$drain_at_most" -v partition="$partition" \
            -v kind="$kind" -v hardware="^gpusetup: ($hardware_faults): " '
            $1 != "" { total++ }
            $2 ~ /drain|down|fail/ && $4 ~ /^(gpusetup: |Prolog error)/ {
                kind_of_node = ($4 ~ hardware) ? "hardware faults" : "failed checks"
                if ($4 ~ /^Prolog error/) kind_of_node = kind  # unknown: it counts as both
                if (kind_of_node != kind) next
                if ($1 == node) is_counted = 1
                else if (!is_counted) earlier++
            }
            END {
                if (!total) {
                    print "Slurm does not say which nodes of partition " partition " are drained"
                    exit 1
                }
                allowed = limit + 0
                if (limit ~ /%/) {
                    allowed = int(total * limit / 100)
                    if (limit + 0 > 0 && allowed < 1) allowed = 1  # one sick node of a few
                }
                if (earlier + 1 > allowed) {
                    print kind " already drained " earlier + 0 " of " total \
                        " nodes in partition " partition " (--drain-at-most " limit ")"
                    exit 1
                }
            }' || return 0
    done
    return 1
}

# What the reason $1 counts as in the limit.
kind_of() {
    if echo "$1" | grep -qE "^($hardware_faults): "; then echo "hardware faults"
    else echo "failed checks"; fi
}

# Gives the node the reason $1, in letters that no terminal obeys.
drain_with_reason() {
    reason="gpusetup: $(printf %s "$1" | tr '"' "'" | tr -dc ' -~' | cut -c1-180)"
    scontrol update NodeName="$node" State=DRAIN Reason="$reason"
}

# Drains this node with the reason $1. Above the limit it stays in service, and this is reported.
drain_within_limit() {
    if ! limit=$(exceeds_limit "$1"); then
        drain_with_reason "$1" || { report "$node could not be drained ($1)"; return 1; }
        sleep 3  # slurmctld dates by the second: all drains of the same second have arrived
        limit=$(exceeds_limit "$1") || return 0
        # Others were faster. Undone only if the reason is still ours: an operator may have drained
        # the node since.
        case $(field Reason) in
            "$reason"*) scontrol update NodeName="$node" State=RESUME ;;
            *) return 0 ;;
        esac
    fi
    report "$node is NOT drained although its check failed ($1): $limit. If the driver was updated\
 on all nodes, write the profile again; sick nodes are listed by \`sinfo -R\`"
    return 1
}
