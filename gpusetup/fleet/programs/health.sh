state=$(field State | cut -d' ' -f1)
[ -n "$state" ] || exit 3

# A node without a GPU, for Slurm and for Linux, is not checked.
case $(field Gres) in *gpu*) ;; *) [ -d /proc/driver/nvidia ] || exit 0 ;; esac
wanted=1
has_reason=yes
case $state in
    *DOWN* | *FAIL* | *FUTURE* | *INVAL* | *MAINT* | *REBOOT*) exit 0 ;;
    *DRAIN*)
        case $(field Reason) in
            gpusetup:\ *) wanted=0 ;;  # ours: resumed if the check holds
            Prolog\ error*) has_reason=no ;;  # gets its reason if the check fails
            *) exit 0 ;;  # somebody else's
        esac ;;
esac

# Two checks with the same answer, so that a moment's failure drains nothing.
for pause in 10 0; do
    answer=$(check)
    status=$?
    [ $status -gt 1 ] && { report "the check did not run (exit $status)"; exit 3; }
    [ $status -eq $wanted ] || exit 0
    sleep $pause
done
[ $wanted -eq 0 ] && exec scontrol update NodeName="$node" State=RESUME
if [ "$has_reason" = no ]; then
    drain_with_reason "${answer#failed: }"
else
    drain_within_limit "${answer#failed: }"
fi
